"""CrossQ, on TD3: batch normalization in the critics, and no target networks.

Bhatt, Palenicek, Belousov, Argus, Amiranashvili, Brox and Peters 2024, "CrossQ: Batch Normalization
in Deep Reinforcement Learning for Greater Sample Efficiency and Simplicity", section 3. (s, a) and
(s', a') go through the critics in one forward pass, so that both are normalized with the same
batch statistics. Target networks are then unnecessary.

Differences from the paper: a deterministic actor and TD3's smoothed next actions replace SAC's
stochastic policy. Critics have the actor's `hidden_sizes`; in the paper, their layers have 2,048
units. Batch normalization replaces the batch renormalization of the authors' code. As in that code,
the actor is normalized, because it otherwise saturates on Pendulum-v1 and never recovers.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import keras
import tensorflow as tf

from eagerly.algorithms import (
    TD3,
    ActionHeadOps,
    Actions,
    Batch,
    CriticModel,
    CustomActor,
    CustomCritic,
    Linear,
    ModelBuilder,
    Modules,
    Observations,
    Phase,
    Stream,
    TD3Config,
    Tensors,
    UpdateRandom,
    actor_critic,
    critic_metrics,
    losses,
    seed_word,
    setting,
    weight_seeds,
)


class CrossQConfig(TD3Config):
    """Settings of CrossQ: those of TD3 without tau, and two more.

    "(authors)" marks values from the code of the paper's authors.
    """

    DEFAULTS = {
        "actor_learning_rate": 1e-3,  # as in the paper
        "critic_learning_rate": 1e-3,  # as in the paper
        "policy_delay": 3,  # as in the authors' code
    }
    WITHOUT = {"tau"}  # CrossQ has no target networks

    adam_beta1: float = setting(
        0.5, "Adam's decay rate of the first moment (authors)", at_least=0, below=1
    )
    norm_momentum: float = setting(
        0.99, "Momentum of the running batch statistics (authors)", above=0, below=1
    )

    def check_spaces(self, observations: Observations, actions: Actions) -> None:
        """Validates that this file's networks support the spaces and the settings."""
        super().check_spaces(observations, actions)
        replaced = self.remembers or self.has_custom_models or self.layer_norm
        if replaced or actions.choices or not observations.is_one_vector:
            raise ValueError(
                "CrossQ requires vector observations and continuous actions, without recurrent "
                f"networks, layer_norm and custom models; got {observations.space} and "
                f"{actions.space}: remove memory, layer_norm, actor, critic and models"
            )


class CrossQBuilder(ModelBuilder):
    """Builds the actor and critics as Keras models with batch normalization, without encoders."""

    def actor(self, name: str = "actor", encoder: Any = None) -> CustomActor:
        """Builds the actor."""
        seed = seed_word(self.seed, Stream.ACTOR)
        model = self._normalized(self._features, self.actions.size, "tanh", seed)
        return CustomActor(model, name=name, **self.custom_arguments())

    def critic(self, name: str = "critic", encoder: Any = None) -> CriticModel:
        """Builds the critics."""
        seeds = weight_seeds(seed_word(self.seed, Stream.CRITIC), self.config.n_critics)
        inputs = self._features + self.actions.size
        models = (self._normalized(inputs, 1, None, seed) for seed in seeds)
        return CustomCritic(models, len(seeds), name=name, **self.custom_arguments())

    @property
    def _features(self) -> int:
        return self.observations.size - self.observations.masked

    def _normalized(self, inputs: int, outputs: int, last: str | None, seed: int) -> keras.Model:
        """Builds an MLP with normalized inputs and hidden layers."""
        config = self.config
        sizes = [inputs, *config.hidden_sizes, outputs]
        activations = [config.activation] * len(config.hidden_sizes) + [last]
        seeds = weight_seeds(seed, len(activations))
        layers = [keras.Input((inputs,), dtype=config.variable_dtype)]
        for (before, after), activation, each in zip(
            pairwise(sizes), activations, seeds, strict=True
        ):
            layers += [
                keras.layers.BatchNormalization(
                    momentum=config.norm_momentum, dtype=config.precision
                ),
                Linear(
                    before,
                    after,
                    initializer=config.initializer,
                    seed=each,
                    activation=activation,
                    dtype=config.precision,
                ),
            ]
        return keras.Sequential(layers)


class CrossQ(TD3):
    """TD3 without target networks, whose critics normalize (s, a) and (s', a') jointly."""

    Config = CrossQConfig
    Builder = CrossQBuilder
    config: CrossQConfig

    def build(self, builder: ModelBuilder) -> Modules:
        """Builds the actor and critics, without target networks."""
        modules = actor_critic(builder, targets=False)
        for module in modules.values():
            module.optimizer.beta_1 = self.config.adam_beta1
        return modules

    def update(self, batch: Batch, random: UpdateRandom, phase: Phase) -> tuple[Tensors, Tensors]:
        """Runs one update."""
        outputs = self.outputs(random)
        metrics, td_error = self.joint_step(batch, self.next_action(batch, outputs))
        if phase.is_multiple_of(self.config.policy_delay):
            metrics |= self.actor_step(batch, outputs)
        return metrics, {"td_error": td_error}

    def next_action(self, batch: Batch, outputs: ActionHeadOps) -> tf.Tensor:
        """Returns the online actor's next actions `[B, A]`, smoothed."""
        return outputs.target_smoothed(
            self.actor(batch.next_observation),
            self.config.target_noise,
            self.config.target_noise_clip,
        )

    def joint_step(self, batch: Batch, next_action: tf.Tensor) -> tuple[Tensors, tf.Tensor]:
        """Updates the critics. Returns metrics and each row's largest absolute TD error `[B]`."""
        observation = tf.concat([batch.observation, batch.next_observation], axis=0)
        action = tf.concat([batch.action, next_action], axis=0)
        with tf.name_scope("critic_loss"), tf.GradientTape() as tape:
            # q, q' = Q([s, s'], [a, a']). Training mode normalizes with this batch's statistics.
            both = self.critic(observation, action, training=True)
            values, next_values = tf.split(both, 2, axis=1)  # [C, B] each
            # y = r + γ min_i q'_i. No gradient flows through y.
            target = losses.clipped_target(batch.reward, batch.discount, next_values)
            loss = self.critic_loss(values, target, batch.mask, batch.weight)
        self.critic.minimize(loss, tape)
        error = tf.reduce_max(tf.abs(losses.td_error(values, target)), axis=0)
        return critic_metrics(loss, values, target, batch.mask), error
