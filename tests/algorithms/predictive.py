"""TD3 with curiosity: a third network predicts the next observation, and its error is a reward.

Pathak, Agrawal, Efros and Darrell 2017, "Curiosity-driven Exploration by Self-supervised
Prediction", Eqs. 4 to 6.

Differences from the paper: the features φ are the observations themselves, which are vectors here,
so there is no inverse model to learn features. The network predicts the change of the observation.
Bonuses are computed when a transition is replayed, not when it is collected: they fade as the
network learns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from eagerly.agents.actor_critic import actor_critic
from eagerly.agents.adam import Adam
from eagerly.agents.builder import ModelBuilder
from eagerly.agents.inputs import Batch
from eagerly.agents.modules import Module, Modules
from eagerly.agents.random import UpdateRandom
from eagerly.agents.schedule import Phase
from eagerly.agents.td3 import TD3, Tensors
from eagerly.agents.td3_config import TD3Config
from eagerly.networks.initializers import weight_seeds
from eagerly.networks.layers import Linear
from eagerly.seeding import Stream, seed_word
from eagerly.settings import setting
from eagerly.spaces import Actions, Observations


@dataclass(frozen=True, kw_only=True)
class PredictiveConfig(TD3Config):
    """Settings of TD3, and of curiosity."""

    curiosity: float = setting(0.01, "Scale of the bonus, η", at_least=0)
    dynamics_units: int = setting(
        128, "Hidden units of the dynamics model", at_least=1, at_most=2**14
    )
    dynamics_learning_rate: float = setting(1e-3, "Adam's step size, dynamics model", above=0)

    def check_spaces(self, observations: Observations, actions: Actions) -> None:
        """Refuses observations that are not vectors, and memories."""
        super().check_spaces(observations, actions)
        if self.remembers or not observations.is_one_vector:
            raise ValueError(
                "curiosity is for observations that are vectors, without a memory; got memory "
                f"{self.memory.kind} and {observations.space}"
            )


class Predictive(TD3):
    """TD3 with a bonus for transitions that its dynamics model predicts badly."""

    Config = PredictiveConfig
    config: PredictiveConfig

    def build(self, builder: ModelBuilder) -> Modules:
        """Builds the modules of TD3, and `dynamics`."""
        dynamics = Module(
            "dynamics",
            dynamics_model(builder),
            optimizer=Adam(self.config.dynamics_learning_rate, name="dynamics_optimizer"),
        )
        return Modules(*actor_critic(builder).values(), dynamics)

    def update(self, batch: Batch, random: UpdateRandom, phase: Phase) -> tuple[Tensors, Tensors]:
        """Makes one update of the dynamics model, then one of TD3 with r + r^i in place of r."""
        surprise = self.dynamics_step(batch)
        bonus = self.config.curiosity * surprise  # r^i = η/2 ||φ̂(s') - φ(s')||² (Eq. 6)
        metrics, per_row = super().update(
            batch._replace(reward=batch.reward + bonus), random, phase
        )
        metrics |= {
            "losses/dynamics": tf.reduce_mean(surprise),
            "rewards/curiosity": tf.reduce_mean(bonus),
        }
        return metrics, per_row | {"surprise": surprise}

    def dynamics_step(self, batch: Batch) -> tf.Tensor:
        """Moves the dynamics model; returns what its loss was for each row `[B]`."""
        scaled: Any = self.normalization or tf.identity
        observation, after = scaled(batch.observation), scaled(batch.next_observation)
        with tf.name_scope("dynamics_loss"), tf.GradientTape() as tape:
            # L = ½ ||φ̂(s') - φ(s')||² (Eq. 5), with φ̂(s') = s + f(s, a)
            change = self.modules["dynamics"](tf.concat([observation, batch.action], axis=1))
            surprise = tf.reduce_sum(tf.square(observation + change - after), axis=1) / 2
            loss = tf.reduce_mean(surprise)
        self.modules["dynamics"].minimize(loss, tape)
        return surprise


def dynamics_model(builder: ModelBuilder) -> keras.Model:
    """Builds f, from observation and action `[B, O + A]` to the change `[B, O]`."""
    config, size = builder.config, builder.observations.size
    inputs, units = size + builder.actions.size, config.dynamics_units
    first, last = weight_seeds(seed_word(builder.seed, Stream.ENCODER), 2)
    shared = {"initializer": config.initializer, "dtype": config.variable_dtype}
    model = keras.Sequential(
        [
            # Named, because checkpoints go by names, and those that Keras makes up are numbered.
            Linear(inputs, units, activation="relu", seed=first, name="hidden", **shared),
            Linear(units, size, seed=last, name="change", **shared),
        ],
        name="dynamics",
    )
    model.build((None, inputs))
    return model
