"""Randomized Ensembled Double Q-learning (REDQ), on TD3.

Chen, Wang, Zhou and Ross 2021, "Randomized Ensembled Double Q-Learning: Learning Fast Without a
Model", Algorithm 1. Their G, the updates per environment step, is the run's `replay_ratio`; the
paper sets it to 20.

Differences from the paper: TD3's deterministic actor and smoothed target actions replace SAC's
stochastic policy. Actor and targets move every `policy_delay` updates; in the paper targets move in
every update, and the actor in one of G.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from eagerly.agents import losses
from eagerly.agents.inputs import Batch
from eagerly.agents.random import UpdateRandom
from eagerly.agents.td3 import TD3
from eagerly.agents.td3_config import TD3Config
from eagerly.networks.models import repeated
from eagerly.settings import setting


class REDQConfig(TD3Config):
    """Settings of REDQ: those of TD3, and the size of the random subset."""

    n_critics: int = setting(5, "Critics, N (paper: 10)", at_least=1, at_most=256)
    subset_size: int = setting(
        2, "Critics drawn at random for each update's target, M (paper)", at_least=1, at_most=256
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.subset_size > self.n_critics:
            raise ValueError(
                f"subset_size must be at most n_critics, {self.n_critics}; got {self.subset_size}"
            )


class REDQ(TD3):
    """TD3 with N critics: M random ones make the target, and the actor follows the mean of all."""

    Config = REDQConfig
    config: REDQConfig

    def target(self, batch: Batch, next_action: tf.Tensor, random: UpdateRandom) -> tf.Tensor:
        """Returns y `[B]`, on which all critics regress."""
        # y = r + γ min_{i ∈ M} Q'_i(s', ã), with a new subset M in every update: the target's bias
        # depends on the size of M alone, its variance falls with that of the ensemble
        values = self.critic.target(batch.next_observation, next_action)  # [N, B]
        subset = random.subset(self.config.subset_size, self.config.n_critics, "critics")
        return losses.clipped_target(batch.reward, batch.discount, tf.gather(values, subset))

    def value(self, observation: Any, action: tf.Tensor, alternatives: int = 1) -> tf.Tensor:
        """Returns the mean value `[n B]` of all critics, which the actor follows."""
        return tf.reduce_mean(self.critic(repeated(observation, alternatives), action), axis=0)
