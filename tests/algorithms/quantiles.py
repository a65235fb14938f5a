"""Truncated Quantile Critics (TQC), on TD3.

Kuznetsov, Shvechikov, Grishin and Vetrov 2020, "Controlling Overestimation Bias with Truncated
Mixture of Continuous Distributional Quantile Critics", section 3. Each of C critics predicts Q
quantiles of the return. The target pools the quantiles of all target critics, called atoms, and
drops the largest. This controls overestimation more finely than a minimum over critics.

Differences from the paper: TD3's deterministic actor and smoothed target actions replace SAC's
stochastic policy. The actor and the target networks are updated every `policy_delay` updates.

Shapes: B batch, C critics, Q quantiles per critic, K atoms of a target.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from eagerly.algorithms import (
    MLP,
    TD3,
    Actions,
    Batch,
    EnsembleDense,
    EnsembleLayerNormalization,
    Group,
    ModelBuilder,
    Observations,
    Stream,
    TD3Config,
    Tensors,
    UpdateRandom,
    critic_metrics,
    losses,
    repeated,
    seed_word,
    setting,
)


def check_dropped(config: Any) -> None:
    """Raises a `ValueError` if `dropped` would leave no atoms of a critic."""
    if config.dropped >= config.n_quantiles:
        raise ValueError(
            f"dropped must be below n_quantiles, {config.n_quantiles}; got {config.dropped}"
        )


QUANTILES = Group("Quantiles", check_dropped)


class TQCConfig(TD3Config):
    """Settings of TQC: those of TD3 and of the quantiles."""

    DEFAULTS = {"n_critics": 5}  # as in the paper, where the number is N

    n_quantiles: int = setting(
        25,
        "Quantiles per critic, M (paper)",
        at_least=1,
        at_most=1024,
        group=QUANTILES,
        built=True,
    )
    dropped: int = setting(
        2,
        "Largest atoms dropped from each target per critic, d (paper: 0 to 5)",
        at_least=0,
        group=QUANTILES,
    )

    def critics(self) -> dict[str, Any]:
        """Returns the arguments of critics that other networks do not have."""
        return super().critics() | {"n_quantiles": self.n_quantiles}

    def check_spaces(self, observations: Observations, actions: Actions) -> None:
        """Validates that this file's critics support the spaces and the settings."""
        super().check_spaces(observations, actions)
        if self.remembers or self.critic or self.models or not observations.is_one_vector:
            raise ValueError(
                "TQC requires vector observations, without recurrent networks and custom critics; "
                f"got {observations.space}: remove memory, critic and models"
            )


class QuantileCritic(MLP):
    """Maps (observation, action) to quantiles of the return, `[C, B, Q]`.

    Args:
        observation_size: O.
        action_size: A.
        n_critics: C.
        n_quantiles: Q.
        masked: Number of mask columns at the end of an observation, which no layer receives.
        **network: Further arguments of `MLP`.
    """

    def __init__(
        self,
        observation_size: int,
        action_size: int,
        *,
        n_critics: int,
        n_quantiles: int,
        masked: int,
        **network: Any,
    ) -> None:
        super().__init__(
            (observation_size - masked, n_quantiles),
            partial(EnsembleDense, n_critics),
            partial(EnsembleLayerNormalization, n_critics),
            last="quantiles",
            masked=masked,
            action_size=action_size,
            **network,
        )
        self(
            *(np.zeros((1, size), self.variable_dtype) for size in (observation_size, action_size))
        )

    def call(self, observation: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """Maps `[B, O]` and `[B, A]` to `[C, B, Q]`."""
        action = tf.cast(action, self.compute_dtype)
        return self._outputs(observation, joined=lambda rows: tf.concat([rows, action], axis=-1))


class QuantileBuilder(ModelBuilder):
    """Builds quantile critics."""

    def critic(self, name: str = "critic", encoder: Any = None) -> QuantileCritic:
        """Builds the critics. `encoder` is None: `check_spaces` rejects spaces that need one."""
        return QuantileCritic(
            self.observations.size,
            self.actions.size,
            masked=self.observations.masked,
            normalization=self.normalization,
            seed=seed_word(self.seed, Stream.CRITIC),
            name=name,
            **self.config.networks(),
            **self.config.critics(),
        )


class TQC(TD3):
    """TD3 whose critics predict quantiles and whose target drops the largest quantiles."""

    Config = TQCConfig
    Builder = QuantileBuilder
    config: TQCConfig

    def target(self, batch: Batch, next_action: tf.Tensor, random: UpdateRandom) -> tf.Tensor:
        """Returns the atoms y `[B, K]` of the target distribution of all critics."""
        atoms = self.critic.target(batch.next_observation, next_action)
        return truncated_target(batch.reward, batch.discount, atoms, self.config.dropped)

    def critic_step(self, batch: Batch, target: tf.Tensor) -> tuple[Tensors, tf.Tensor]:
        """Updates the critics. Returns metrics and each row's largest absolute TD error `[B]`."""
        with tf.name_scope("critic_loss"), tf.GradientTape() as tape:
            quantiles = self.critic(batch.observation, batch.action, training=True)
            loss = quantile_huber_loss(quantiles, target, batch.weight)
        self.critic.minimize(loss, tape)
        # Curves and priorities use the means of the predicted distributions [C, B] and of the
        # target distribution [B].
        values, mean_target = tf.reduce_mean(quantiles, axis=-1), tf.reduce_mean(target, axis=-1)
        error = tf.reduce_max(tf.abs(losses.td_error(values, mean_target)), axis=0)
        return critic_metrics(loss, values, mean_target, batch.mask), error

    def value(self, observation: tf.Tensor, action: tf.Tensor, alternatives: int = 1) -> tf.Tensor:
        """Returns the mean over all critics' quantiles `[n B]`, which the actor maximizes."""
        quantiles = self.critic(repeated(observation, alternatives), action)
        return tf.reduce_mean(quantiles, axis=(0, 2))


def truncated_target(
    reward: tf.Tensor, discount: tf.Tensor, atoms: tf.Tensor, dropped: int
) -> tf.Tensor:
    """Pools all critics' atoms, drops the largest, and returns the targets of the others.

    Args:
        reward: `[B]`.
        discount: `[B]`.
        atoms: `[C, B, Q]`, the target critics' quantiles at the next step.
        dropped: Atoms dropped per critic.

    Returns:
        `[B, K]` with K = C (Q - dropped), in ascending order, without gradient.
    """
    critics, batch, quantiles = atoms.shape
    pooled = tf.reshape(tf.transpose(atoms, [1, 0, 2]), [batch, critics * quantiles])
    kept = tf.sort(pooled, axis=-1)[:, : critics * (quantiles - dropped)]
    return tf.stop_gradient(reward[:, tf.newaxis] + discount[:, tf.newaxis] * kept)


def quantile_huber_loss(
    quantiles: tf.Tensor, target: tf.Tensor, weight: tf.Tensor | None = None
) -> tf.Tensor:
    """Returns the quantile Huber loss of each critic, summed over critics.

    Because of the sum, each critic's gradient is independent of the other critics.

    Args:
        quantiles: `[C, B, Q]`; the m-th quantile belongs to the fraction τ = (m - 1/2) / Q.
        target: `[B, K]`.
        weight: `[B]`, the weight of each row's loss. None: all weights are 1.
    """
    count = quantiles.shape[-1]
    fractions = (tf.range(count, dtype=quantiles.dtype)[:, tf.newaxis] + 0.5) / count  # [Q, 1]
    errors = target[:, tf.newaxis, :] - quantiles[..., tf.newaxis]  # [C, B, Q, K]
    size = tf.abs(errors)
    huber = tf.where(size <= 1.0, tf.square(errors) / 2, size - 0.5)
    # |τ - 1(u < 0)|: target atoms above a predicted quantile raise it, and those below lower it.
    pull = tf.where(errors < 0.0, 1.0 - fractions, fractions)
    each = tf.reduce_mean(pull * huber, axis=(2, 3))  # [C, B]
    return tf.reduce_sum(losses.mean(each if weight is None else each * weight, None, axis=1))
