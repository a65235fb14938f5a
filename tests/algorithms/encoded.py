"""TD3 with an encoder that learns to predict observations and supplies features to the critics.

Ota, Oiki, Jha, Mariyama and Nikovski 2020, "Can Increasing Input Dimensionality Improve Deep
Reinforcement Learning?" (OFENet): networks receive features of the observation together with the
observation itself. An encoder learns these features by predicting the next observation from the
features and the action.

Differences from the paper: a small network replaces the paper's dense blocks, and only the critics
receive features. The actor is TD3's. Target critics use the current encoder's features.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import keras
import tensorflow as tf

from eagerly.algorithms import (
    TD3,
    Actions,
    Batch,
    Critic,
    ModelBuilder,
    Module,
    Modules,
    Observations,
    Phase,
    Stream,
    TD3Config,
    Tensors,
    UpdateRandom,
    actor_critic,
    seed_word,
    setting,
)


class EncodedConfig(TD3Config):
    """Settings of TD3 and of the encoder."""

    features: int = setting(64, "Number of features per observation", at_least=1, at_most=2**14)
    encoder_learning_rate: float = setting(1e-3, "Adam learning rate of the encoder", above=0)

    def check_spaces(self, observations: Observations, actions: Actions) -> None:
        """Validates that this file's critics support the spaces and the settings."""
        super().check_spaces(observations, actions)
        odd = self.remembers or self.has_custom_models or self.normalize_observations
        if odd or observations.masked or not observations.is_one_vector:
            raise ValueError(
                "EncodedTD3 requires vector observations, without recurrent networks, masks, "
                f"normalization and custom models; got {observations.space}: remove these settings"
            )


class Encoder(keras.Model):
    """Predicts next observations `[B, O]` from actions and the features of observations."""

    def __init__(self, observation_size: int, features: int, dtype: str) -> None:
        super().__init__(name="encoder", dtype=dtype)
        dense = partial(keras.layers.Dense, dtype=dtype)
        self.hidden = dense(2 * features, "elu", name="hidden")
        self.last = dense(features, "elu", name="features")
        self.prediction = dense(observation_size, name="prediction")

    def call(self, observation: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """Returns the predicted next observations `[B, O]`."""
        return self.prediction(tf.concat([self.features(observation), action], axis=1))

    def features(self, observation: tf.Tensor) -> tf.Tensor:
        """Returns the features `[B, F]` of observations."""
        return self.last(self.hidden(observation))


class EncodedBuilder(ModelBuilder):
    """Builds critics whose inputs are observations, their features and actions."""

    def critic(self, name: str = "critic", encoder: Any = None) -> Critic:
        """Builds the critics. `encoder` is None: `check_spaces` rejects spaces that need one."""
        return Critic(
            self.observations.size + self.config.features,
            self.actions.size,
            seed=seed_word(self.seed, Stream.CRITIC),
            name=name,
            **self.config.networks(),
            **self.config.critics(),
        )


class EncodedTD3(TD3):
    """TD3 whose critics receive observations and their features."""

    Config = EncodedConfig
    Builder = EncodedBuilder
    config: EncodedConfig

    def build(self, builder: ModelBuilder) -> Modules:
        """Builds the modules of TD3 and the encoder."""
        size, dtype = builder.observations.size, self.config.variable_dtype
        network = Encoder(size, self.config.features, dtype)
        # The first call of the encoder creates its variables.
        network(*(tf.zeros((1, n), dtype) for n in (size, builder.actions.size)))
        optimizer = builder.rates.optimizer(self.config.encoder_learning_rate, "encoder_optimizer")
        return Modules(
            *actor_critic(builder).values(), Module("encoder", network, optimizer=optimizer)
        )

    def update(self, batch: Batch, random: UpdateRandom, phase: Phase) -> tuple[Tensors, Tensors]:
        """Updates the encoder, then runs a TD3 update."""
        encoder = self.modules["encoder"]
        with tf.name_scope("encoder_loss"), tf.GradientTape() as tape:
            predicted = encoder.network(batch.observation, batch.action)
            loss = tf.reduce_mean(tf.square(predicted - batch.next_observation))
        encoder.minimize(loss, tape)
        metrics, per_row = super().update(batch, random, phase)
        return metrics | {"losses/encoder": loss}, per_row

    def encoded(self, observation: tf.Tensor) -> tf.Tensor:
        """Returns observations with features `[B, O + F]`, without gradients for the encoder."""
        features = self.modules["encoder"].network.features(observation)
        return tf.concat([observation, tf.stop_gradient(features)], axis=1)

    def target(self, batch: Batch, next_action: tf.Tensor, random: UpdateRandom) -> tf.Tensor:
        """Returns the regression target y `[B]` of all critics."""
        seen = batch._replace(next_observation=self.encoded(batch.next_observation))
        return super().target(seen, next_action, random)

    def critic_step(self, batch: Batch, target: tf.Tensor) -> tuple[Tensors, tf.Tensor]:
        """Updates the critics. Returns metrics and each row's largest absolute TD error `[B]`."""
        seen = batch._replace(observation=self.encoded(batch.observation))
        return super().critic_step(seen, target)

    def value(self, observation: tf.Tensor, *more: Any) -> tf.Tensor:
        """Returns the values of the first critic, which the actor maximizes."""
        return self.critic.first(self.encoded(observation), *more)
