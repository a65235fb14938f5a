"""Sequences of unequal length: padding, unpadding, and statistics that ignore padding.

Shapes: N sequences, T_max steps in the longest, S the sum of all lengths. All functions are
differentiable and work in eager, graph and XLA mode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def pad(flat: Any, lengths: Any, *, max_length: int | None = None) -> tf.Tensor:
    """Splits concatenated sequences and right-pads them with zeros.

    Args:
        flat: `[S, ...]`, the steps of the first sequence, then those of the second, and so on.
        lengths: `[N]` integers, at least 0; their sum is S.
        max_length: T_max; None for the longest of `lengths`. Required with XLA, which must know it
            at compile time.

    Returns:
        `[N, T_max, ...]`.

    Raises:
        ValueError: If a rank is wrong.
        tf.errors.InvalidArgumentError: If a length is negative or exceeds `max_length`, or their
            sum is not S. Programs compiled by XLA do not check this.
    """
    flat, lengths = _with_rank(flat, 1, "flat"), _with_rank(lengths, 1, "lengths")
    lengths = tf.cast(lengths, tf.int32)
    longest = tf.reduce_max(tf.concat([lengths, [0]], 0)) if max_length is None else max_length
    with tf.control_dependencies(_checks(lengths, tf.shape(flat)[0], longest)):
        padded = _pad(flat, tf.identity(lengths), longest)
    return tf.ensure_shape(padded, [lengths.shape[0], max_length, *flat.shape[1:]])


def unpad(padded: Any, lengths: Any, *, total: int | None = None) -> tf.Tensor:
    """Concatenates padded sequences without their padding.

    Args:
        padded: `[N, T_max, ...]`.
        lengths: `[N]` integers in [0, T_max].
        total: S; None for the sum of `lengths`. Required with XLA, which must know it at compile
            time.

    Returns:
        `[S, ...]`. Its gradient with respect to padding is exactly 0.

    Raises:
        ValueError: If a rank is wrong.
        tf.errors.InvalidArgumentError: If a length is negative or exceeds T_max, or their sum is
            not `total`. Programs compiled by XLA do not check this.
    """
    padded, lengths = _with_rank(padded, 2, "padded"), _with_rank(lengths, 1, "lengths")
    lengths = tf.cast(lengths, tf.int32)
    size = tf.reduce_sum(lengths) if total is None else total
    with tf.control_dependencies(_checks(lengths, size, tf.shape(padded)[1])):
        flat = _unpad(padded, tf.identity(lengths), size)
    return tf.ensure_shape(flat, [total, *padded.shape[2:]])


def sequence_mask(lengths: Any, max_length: Any) -> tf.Tensor:
    """Returns a mask `[N, T_max]` for lengths `[N]`: true for steps, false for padding."""
    return tf.range(max_length) < tf.cast(lengths, tf.int32)[..., tf.newaxis]


def masked_sum(values: Any, mask: Any, axis: Any = None, keepdims: bool = False) -> tf.Tensor:
    """Sums values where the mask is true.

    Args:
        values: `[...]`, floating-point.
        mask: bool, broadcastable to the shape of `values`.
        axis: As in `tf.reduce_sum`.
        keepdims: As in `tf.reduce_sum`.

    Returns:
        The sum. Values where the mask is false, even NaN, neither affect it nor get a gradient.
    """
    values = tf.convert_to_tensor(values)
    return tf.reduce_sum(tf.where(mask, values, tf.zeros_like(values)), axis, keepdims)


def masked_mean(values: Any, mask: Any, axis: Any = None, keepdims: bool = False) -> tf.Tensor:
    """Averages values where the mask is true, dividing by their number.

    See `masked_sum` for the arguments. If the mask is false everywhere, the mean is 0.
    """
    values = tf.convert_to_tensor(values)
    count = masked_sum(tf.ones_like(values), mask, axis, keepdims)
    return masked_sum(values, mask, axis, keepdims) / tf.maximum(count, tf.ones_like(count))


def masked_variance(values: Any, mask: Any, axis: Any = None) -> tf.Tensor:
    """Returns the biased variance (over n, not n - 1) of values where the mask is true.

    See `masked_sum` for the arguments. If the mask is false everywhere, the variance is 0.
    """
    mean = masked_mean(values, mask, axis, keepdims=True)
    return masked_mean(tf.square(tf.where(mask, values, mean) - mean), mask, axis)


# Padding and unpadding are one gather each, and each is the gradient of the other. A gather writes
# every row of its result once, so results do not depend on the order of threads.


def _pad(flat: tf.Tensor, lengths: tf.Tensor, longest: Any) -> tf.Tensor:
    @tf.custom_gradient
    def padded(flat: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        total = _size(flat, 0)
        nothing = tf.zeros(tf.concat([[1], tf.shape(flat)[1:]], 0), flat.dtype)
        steps, starts = tf.range(longest), tf.cumsum(lengths, exclusive=True)
        rows = tf.where(sequence_mask(lengths, longest), starts[:, tf.newaxis] + steps, total)
        return (
            tf.gather(tf.concat([flat, nothing], 0), rows),
            lambda upstream: _unpad(upstream, lengths, total),
        )

    return padded(flat)


def _unpad(padded: tf.Tensor, lengths: tf.Tensor, total: Any) -> tf.Tensor:
    @tf.custom_gradient
    def flat(padded: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        longest, steps = _size(padded, 1), tf.range(total)
        # A step's sequence index is the number of sequences, also empty ones, that end before it.
        ends = tf.cumsum(lengths)
        sequence = tf.searchsorted(ends, steps, side="right")
        behind = longest * sequence - tf.gather(tf.concat([[0], ends], 0), sequence)
        rows = tf.reshape(padded, tf.concat([[-1], tf.shape(padded)[2:]], 0))
        return tf.gather(rows, behind + steps), lambda upstream: _pad(upstream, lengths, longest)

    return flat(padded)


def _size(values: tf.Tensor, axis: int) -> Any:
    """Returns the length of an axis, as an int if it is static. XLA needs static result shapes."""
    known = values.shape[axis]
    return tf.shape(values)[axis] if known is None else known


def _checks(lengths: tf.Tensor, total: Any, longest: Any) -> list[tf.Operation]:
    between = "every length must be in [0, T_max]"
    return [
        tf.debugging.assert_non_negative(lengths, between),
        tf.debugging.assert_less_equal(lengths, tf.cast(longest, tf.int32), between),
        tf.debugging.assert_equal(
            tf.reduce_sum(lengths), total, "lengths must add up to the number of steps"
        ),
    ]


def _with_rank(value: Any, least: int, name: str) -> tf.Tensor:
    tensor = tf.convert_to_tensor(value)
    exact = name == "lengths"
    if tensor.shape.rank is None or tensor.shape.rank < least or (exact and tensor.shape.rank > 1):
        shape = {"flat": "[S, ...]", "padded": "[N, T_max, ...]", "lengths": "[N]"}[name]
        raise ValueError(f"{name} must have shape {shape}, got {tensor.shape}")
    return tensor
