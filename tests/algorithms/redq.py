"""Randomized Ensembled Double Q-learning (REDQ), on TD3.

Chen, Wang, Zhou and Ross 2021, "Randomized Ensembled Double Q-Learning: Learning Fast Without a
Model", Algorithm 1. Their G, the updates per environment step, is the run's `replay_ratio`; the
paper sets it to 20.

Differences from the paper: TD3's deterministic actor and smoothed target actions replace SAC's
stochastic policy. The actor and the target networks are updated every `policy_delay` updates. In
the paper, the targets are updated in every update, and the actor in one of G updates.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from eagerly.algorithms import TD3, Batch, Group, TD3Config, UpdateRandom, losses, repeated, setting


def check_subset(config: Any) -> None:
    """Raises a `ValueError` if the subset has more critics than the ensemble."""
    if config.subset_size > config.n_critics:
        raise ValueError(
            f"subset_size must be at most n_critics, {config.n_critics}; got {config.subset_size}"
        )


class REDQConfig(TD3Config):
    """Settings of REDQ: those of TD3 and the size of the random subset."""

    DEFAULTS = {"n_critics": 5}  # the paper's N, which is 10 there

    subset_size: int = setting(
        2,
        "Critics drawn at random for each update's target, M (paper)",
        at_least=1,
        at_most=256,
        group=Group("REDQ", check_subset),
    )


class REDQ(TD3):
    """TD3 whose target uses M random critics of N, and whose actor maximizes the mean over N."""

    Config = REDQConfig
    config: REDQConfig

    def target(self, batch: Batch, next_action: tf.Tensor, random: UpdateRandom) -> tf.Tensor:
        """Returns the regression target y `[B]` of all critics."""
        # y = r + γ min_{i ∈ M} Q'_i(s', ã), with a new subset M in every update. The target's bias
        # depends only on the size of M. Its variance decreases as the ensemble grows.
        values = self.critic.target(batch.next_observation, next_action)  # [N, B]
        subset = random.subset(self.config.subset_size, self.config.n_critics, "critics")
        return losses.clipped_target(batch.reward, batch.discount, tf.gather(values, subset))

    def value(self, observation: Any, action: tf.Tensor, alternatives: int = 1) -> tf.Tensor:
        """Returns the mean value `[n B]` of all critics, which the actor maximizes."""
        return tf.reduce_mean(self.critic(repeated(observation, alternatives), action), axis=0)
