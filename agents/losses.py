"""Pure functions of deterministic actor-critic learning: targets, losses, target updates.

Shapes: B batch, A action, C critics. Noise is an argument, so that tests can fix its values.
Equations: Fujimoto et al. 2018, "Addressing Function Approximation Error in Actor-Critic Methods"
(TD3), and Silver et al. 2014, "Deterministic Policy Gradient Algorithms" (DPG).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from eagerly.agents.shapes import expect_rank, expect_same_batch, expect_same_shape
from eagerly.networks.padding import masked_mean


def smoothed_action(action: tf.Tensor, noise: tf.Tensor, clip: float) -> tf.Tensor:
    """Adds clipped noise to target actions and clips the result to [-1, 1] (TD3, Eq. 15).

    Args:
        action: `[B, A]` in [-1, 1], the target policy's actions.
        noise: `[B, A]`, independent for every row and dimension.
        clip: Maximum absolute value of the noise in each dimension.

    Returns:
        `[B, A]` in [-1, 1].
    """
    expect_rank("action", action, 2)
    expect_same_shape("noise", noise, "action", action)
    return tf.clip_by_value(action + tf.clip_by_value(noise, -clip, clip), -1.0, 1.0)


def clipped_target(reward: tf.Tensor, discount: tf.Tensor, next_values: tf.Tensor) -> tf.Tensor:
    """Returns the target shared by all critics: r + discount · min over critics (TD3, Eq. 10).

    Args:
        reward: `[B]`.
        discount: `[B]`; 0 where the episode terminated.
        next_values: `[C, B]`, the target critics' values at the next step.

    Returns:
        `[B]`; no gradient flows through it.
    """
    expect_rank("reward", reward, 1)
    expect_same_shape("discount", discount, "reward", reward)
    expect_rank("next_values", next_values, 2)
    expect_same_batch("next_values", next_values, "reward", reward)
    return tf.stop_gradient(reward + discount * tf.reduce_min(next_values, axis=0))


def td_error(values: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """Returns Q - y for each critic, `[C, B]`, given values `[C, B]` and targets `[B]`."""
    expect_rank("values", values, 2)
    expect_rank("target", target, 1)
    expect_same_batch("values", values, "target", target)
    return values - target


def critic_loss(
    values: tf.Tensor,
    target: tf.Tensor,
    mask: tf.Tensor | None = None,
    weight: tf.Tensor | None = None,
    loss: Callable[[tf.Tensor], tf.Tensor] = tf.square,
) -> tf.Tensor:
    """Returns the mean squared error of each critic, summed over critics (TD3, Algorithm 1).

    The sum gives each critic the same gradient as training it separately.

    Args:
        values: `[C, B]`.
        target: `[B]`.
        mask: `[B]` bool, the rows to include; all if None.
        weight: `[B]`, the weight of each row's loss; 1 if None.
        loss: Elementwise function of the TD errors that replaces the square.
    """
    errors = loss(td_error(values, target))
    if weight is not None:
        expect_same_shape("weight", weight, "target", target)
        errors *= weight
    return tf.reduce_sum(mean(errors, mask, axis=1))


def actor_loss(values: tf.Tensor, mask: tf.Tensor | None = None) -> tf.Tensor:
    """Returns the negative mean value of the actor's actions (DPG, Eq. 9).

    Its gradient with respect to the actor's weights, through the action only, is the deterministic
    policy gradient. The caller must hold the critic's weights fixed.

    Args:
        values: `[B]`, one critic's values at (observation, actor(observation)).
        mask: `[B]` bool, the rows to include; all if None.
    """
    expect_rank("values", values, 1)
    return -mean(values, mask)


def mean(values: tf.Tensor, mask: tf.Tensor | None, axis: int | None = None) -> tf.Tensor:
    """Returns the mean over the rows in the mask, so that padding never counts.

    Args:
        values: `[B]` or `[C, B]`.
        mask: `[B]` bool; all rows if None.
        axis: As in `tf.reduce_mean`.
    """
    if mask is None:
        return tf.reduce_mean(values, axis=axis)
    expect_rank("mask", mask, 1)
    expect_same_batch("mask", mask, "values", values)
    return masked_mean(values, mask, axis)


def polyak_update(targets: Iterable[Any], sources: Iterable[Any], tau: float) -> None:
    """Moves each target toward its source by a fraction `tau`: θ' ← τ θ + (1 - τ) θ'."""
    for target, source in zip(targets, sources, strict=True):
        target.assign(tau * source + (1.0 - tau) * target)
