"""Metrics common to all actor-critic agents."""

from __future__ import annotations

import tensorflow as tf

from eagerly.agents import losses
from eagerly.agents.shapes import expect_rank
from eagerly.networks.padding import masked_mean

MAXIMA = frozenset({"values/max"})  # metrics that are maxima over rows; all others are means


def critic_metrics(
    loss: tf.Tensor, values: tf.Tensor, target: tf.Tensor, mask: tf.Tensor | None
) -> dict[str, tf.Tensor]:
    """Returns the critics' loss, the first critic's mean and maximum value, and the mean target.

    Args:
        loss: Scalar.
        values: `[C, B]`.
        target: `[B]`.
        mask: `[B]` bool, the rows to include; all if None.
    """
    expect_rank("values", values, 2)
    expect_rank("target", target, 1)
    return {
        "losses/critic": loss,
        "values/mean": losses.mean(values[0], mask),
        "values/max": _greatest(values[0], mask),
        "values/target_mean": losses.mean(target, mask),
    }


def actor_metrics(
    loss: tf.Tensor, saturated: tf.Tensor, mask: tf.Tensor | None
) -> dict[str, tf.Tensor]:
    """Returns the actor's loss and the fraction of action components at their bounds.

    Args:
        loss: Scalar.
        saturated: `[B, A]` bool, the components at a bound.
        mask: `[B]` bool, the rows to include; all if None.
    """
    share = tf.cast(saturated, loss.dtype)
    over_rows = tf.reduce_mean(share) if mask is None else masked_mean(share, mask[:, tf.newaxis])
    return {"losses/actor": loss, "actions/saturation": over_rows}


def _greatest(values: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
    """Returns the maximum of values `[B]` over the rows in the mask."""
    if mask is None:
        return tf.reduce_max(values)
    return tf.reduce_max(tf.where(mask, values, values.dtype.min))
