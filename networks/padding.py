"""Sequences of unequal length: to and from padded form, and statistics that leave padding out.

Shapes: N sequences, T_max steps of the longest, S the sum of all lengths. All of it is
differentiable and works in eager, graph and XLA mode.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def pad(flat: Any, lengths: Any, *, max_length: int | None = None) -> tf.Tensor:
    """Lays sequences that stand one behind the other side by side, zeros behind each.

    Args:
        flat: `[S, ...]`: the steps of the first sequence, then those of the second, and so on.
        lengths: `[N]`, integers, at least 0; their sum is S.
        max_length: T_max; None for the longest of `lengths`. XLA has to know it while it
            compiles: give it there.

    Returns:
        `[N, T_max, ...]`.

    Raises:
        ValueError: If a rank is wrong.
        tf.errors.InvalidArgumentError: If a length is negative or longer than `max_length`, or
            their sum is not S; a program that XLA compiled checks nothing.
    """
    flat, lengths = _with_rank(flat, 1, "flat"), _with_rank(lengths, 1, "lengths")
    lengths = tf.cast(lengths, tf.int32)
    longest = tf.reduce_max(tf.concat([lengths, [0]], 0)) if max_length is None else max_length
    with tf.control_dependencies(_checks(lengths, tf.shape(flat)[0], longest)):
        places = _places(lengths, flat.shape[0] or tf.shape(flat)[0])
        shape = tf.concat([[tf.size(lengths), longest], tf.shape(flat)[1:]], 0)
    if flat.shape[0] == 0:
        return tf.zeros(shape, flat.dtype)
    padded = tf.scatter_nd(places, flat, shape)
    return tf.ensure_shape(padded, [lengths.shape[0], max_length, *flat.shape[1:]])


def unpad(padded: Any, lengths: Any, *, total: int | None = None) -> tf.Tensor:
    """Puts sequences that lie side by side one behind the other, without what is behind each.

    Args:
        padded: `[N, T_max, ...]`.
        lengths: `[N]`, integers in [0, T_max].
        total: S; None for the sum of `lengths`. XLA has to know it while it compiles: give it
            there.

    Returns:
        `[S, ...]`. Its gradient with respect to padding is exactly 0.

    Raises:
        ValueError: If a rank is wrong.
        tf.errors.InvalidArgumentError: If a length is negative or longer than T_max, or their sum
            is not `total`; a program that XLA compiled checks nothing.
    """
    padded, lengths = _with_rank(padded, 2, "padded"), _with_rank(lengths, 1, "lengths")
    lengths = tf.cast(lengths, tf.int32)
    size = tf.reduce_sum(lengths) if total is None else total
    with tf.control_dependencies(_checks(lengths, size, tf.shape(padded)[1])):
        places = _places(lengths, size)
    return tf.ensure_shape(tf.gather_nd(padded, places), [total, *padded.shape[2:]])


def sequence_mask(lengths: Any, max_length: Any) -> tf.Tensor:
    """Says what is a step and what is padding: `[N, T_max]` bool of lengths `[N]`."""
    return tf.range(max_length) < tf.cast(lengths, tf.int32)[..., tf.newaxis]


def masked_sum(values: Any, mask: Any, axis: Any = None) -> tf.Tensor:
    """Adds up values where the mask is true.

    Args:
        values: `[...]`, floating.
        mask: bool, of a shape that broadcasts to that of `values`.
        axis: As in `tf.reduce_sum`.

    Returns:
        The sum. Whatever stands where the mask is false, NaN too, neither moves it nor gets a
        gradient.
    """
    values = tf.convert_to_tensor(values)
    return tf.reduce_sum(tf.where(mask, values, tf.zeros_like(values)), axis)


def masked_mean(values: Any, mask: Any, axis: Any = None) -> tf.Tensor:
    """Averages values where the mask is true: their sum over their number, not over all places.

    Arguments as in `masked_sum`; where nothing is true the mean is 0.
    """
    values = tf.convert_to_tensor(values)
    count = tf.reduce_sum(tf.where(mask, tf.ones_like(values), tf.zeros_like(values)), axis)
    return masked_sum(values, mask, axis) / tf.maximum(count, tf.ones_like(count))


def masked_variance(values: Any, mask: Any, axis: Any = None) -> tf.Tensor:
    """Returns the variance, over n and not n - 1, of values where the mask is true.

    Arguments as in `masked_sum`; where nothing is true it is 0.
    """
    values = tf.convert_to_tensor(values)
    present = tf.where(mask, values, tf.zeros_like(values))
    count = tf.where(mask, tf.ones_like(values), tf.zeros_like(values))
    total = tf.reduce_sum(present, axis, keepdims=True)
    number = tf.reduce_sum(count, axis, keepdims=True)
    mean = total / tf.maximum(number, tf.ones_like(number))
    return masked_mean(tf.square(present - mean), mask, axis)


def _places(lengths: tf.Tensor, total: Any) -> tf.Tensor:
    """Returns sequence and step within it of each of S steps, `[S, 2]`."""
    ends, steps = tf.cumsum(lengths), tf.range(total)
    # A step's sequence: how many have ended by then. One of length 0 has ended as it begins.
    sequence = tf.searchsorted(ends, steps, side="right")
    starts = tf.concat([[0], ends], 0)
    return tf.stack([sequence, steps - tf.gather(starts, sequence)], axis=1)


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
