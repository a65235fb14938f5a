"""What an update says of itself: the curves that every actor-critic here has."""

from __future__ import annotations

import tensorflow as tf

from eagerly.agents import losses
from eagerly.networks.padding import masked_mean


def critic_metrics(
    loss: tf.Tensor, values: tf.Tensor, target: tf.Tensor, mask: tf.Tensor | None
) -> dict[str, tf.Tensor]:
    """Returns the critics' loss, and what the first one thinks of the batch.

    Args:
        loss: Scalar.
        values: `[C, B]`.
        target: `[B]`.
        mask: `[B]` bool, which rows count; None: all.
    """
    return {
        "losses/critic": loss,
        "values/mean": losses.mean(values[0], mask),
        "values/max": _greatest(values[0], mask),
        "values/target_mean": losses.mean(target, mask),
    }


def actor_metrics(
    loss: tf.Tensor, saturated: tf.Tensor, mask: tf.Tensor | None
) -> dict[str, tf.Tensor]:
    """Returns the actor's loss, and the share of action components at their bounds.

    Args:
        loss: Scalar.
        saturated: `[B, A]` bool, which components are.
        mask: `[B]` bool, which rows count; None: all.
    """
    share = tf.cast(saturated, loss.dtype)
    over_rows = tf.reduce_mean(share) if mask is None else masked_mean(share, mask[:, tf.newaxis])
    return {"losses/actor": loss, "actions/saturation": over_rows}


def _greatest(values: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
    """Returns the greatest of values `[B]` that count."""
    if mask is None:
        return tf.reduce_max(values)
    return tf.reduce_max(tf.where(mask, values, values.dtype.min))
