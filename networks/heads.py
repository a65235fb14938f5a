"""What stands behind the last layer of an actor, for tensors."""

from __future__ import annotations

import tensorflow as tf

from eagerly.policies.heads import ActionHead
from eagerly.spaces.actions import INVALID


def scores(head: ActionHead, outputs: tf.Tensor, observation: tf.Tensor) -> tf.Tensor:
    """Maps the last layer's `[B, A]` to scores, with observations `[B, O]` and their mask.

    What `ActionHead.scores` does in NumPy.
    """
    squashed = tf.tanh if head.squashes else tf.identity
    if not head.choices:
        return squashed(outputs)
    parts = [squashed(outputs[:, : head.continuous])] if head.continuous else []
    for columns in head.segments():
        logits = outputs[:, columns]
        if head.masked:
            valid = head.mask_of(observation, columns) > 0.5
            lowest = tf.where(valid, logits, logits.dtype.min)
            logits = logits - tf.stop_gradient(tf.reduce_max(lowest, axis=1, keepdims=True))
            powers = tf.where(valid, tf.exp(tf.where(valid, logits, 0.0)), 0.0)
            # At least 1, but in padding, where nothing is valid and no gradient may be NaN.
            total = tf.maximum(tf.reduce_sum(powers, axis=1, keepdims=True), 0.5)
            parts.append(tf.where(valid, logits - tf.math.log(total), INVALID))
        else:
            parts.append(tf.nn.log_softmax(logits))
    return tf.concat(parts, axis=1)
