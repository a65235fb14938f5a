"""Fake quantization: rounds tensors to the grids of 8-bit integers, with gradients for training.

See Jacob et al. 2018, "Quantization and Training of Neural Networks for Efficient Integer-
Arithmetic-Only Inference", section 3. `policies.integer_grids` defines the grids, and
`policies.network` performs the same computations in NumPy (documentation: Quantization).
`networks.quantization_ranges` applies the functions of this module to an actor.

Numbers are rounded half to even, with bitwise identical results in eager, graph and XLA mode; see
`_divided`.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from eagerly.policies.integer_grids import (
    INVERSE_BIAS_STEPS,
    INVERSE_STEPS,
    LEAST,
    LEAST_WEIGHT,
    MOST,
    STEPS,
    TANH_SCALE,
)


@tf.custom_gradient
def fake_quantized(x: tf.Tensor, scale: tf.Tensor, zero_point: tf.Tensor) -> Any:
    """Rounds activations to a grid and clips them to its ends.

    The gradient is straight-through: it ignores the rounding. Outside the grid it is 0.

    Args:
        x: Any shape.
        scale: Scalar, the grid's step.
        zero_point: Scalar, the integer that represents 0.
    """
    q = tf.round(x / scale) + zero_point
    within = tf.logical_and(q >= LEAST, q <= MOST)
    values = (tf.clip_by_value(q, LEAST, MOST) - zero_point) * scale
    return values, lambda upstream: (tf.where(within, upstream, 0.0), None, None)


@tf.custom_gradient
def rounded(x: tf.Tensor, scale: tf.Tensor) -> Any:
    """Rounds biases to multiples of a scale, with a straight-through gradient.

    Args:
        x: `[..., units]`.
        scale: `[units]`.
    """
    return tf.round(x / scale) * scale, lambda upstream: (upstream, None)


@tf.custom_gradient
def rounded_kernel(kernel: tf.Tensor, scales: tf.Tensor, ends: tf.Tensor) -> Any:
    """Rounds a kernel to its grids, with a straight-through gradient.

    The weight that determines a column's scale keeps its value.

    Args:
        kernel: `[I, units]`.
        scales: `[units]`.
        ends: `[units]`, the weight that the integer 127 represents in each column.
    """
    steps = tf.round(kernel / scales)
    values = tf.where(tf.abs(steps) == MOST, tf.sign(steps) * ends, steps * scales)
    return values, lambda upstream: (upstream, None, None)


@tf.custom_gradient
def quantized_tanh(x: tf.Tensor, scale: tf.Tensor, zero_point: tf.Tensor) -> Any:
    """Rounds values to a grid, and their tanh to multiples of 1/128, at most 127/128.

    The gradient is that of tanh(x) without rounding, even outside the grid. If it were 0 there, an
    action that is outside the grid in all rows of a batch could never return to it.

    Args:
        x: Any shape.
        scale: Scalar, the grid's step.
        zero_point: Scalar, the integer that represents 0.
    """
    steps = tf.round(tf.tanh(fake_quantized(x, scale, zero_point)) * (1.0 / TANH_SCALE))

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, None, None]:
        return upstream * (1.0 - tf.square(tf.tanh(x))), None, None

    return tf.minimum(steps, MOST) * TANH_SCALE, gradient


def grid(low: tf.Tensor, high: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns scale and zero point of ranges that contain 0; see `policies.integer_grids.grid`.

    Args:
        low: Any shape, at most 0.
        high: The same shape, at least 0 and not equal to `low`.
    """
    least, most = tf.cast(low, tf.float64), tf.cast(high, tf.float64)
    whole = most - least
    scale, zero_point = whole * INVERSE_STEPS, tf.floor(LEAST + 0.5 - least * STEPS / whole)
    return tf.cast(scale, low.dtype), tf.cast(zero_point, low.dtype)


def quantized_weights(
    kernel: tf.Tensor, bias: tf.Tensor, input_scale: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Rounds the kernel and bias of a layer to their grids, as `quantized_layer` does in NumPy.

    Args:
        kernel: `[I, units]`.
        bias: `[units]`.
        input_scale: Scalar, the scale of the layer's inputs.
    """
    largest = tf.reduce_max(tf.abs(tf.stop_gradient(kernel)), axis=0)
    of_kernel = _divided(tf.where(largest >= LEAST_WEIGHT, largest, 1.0), MOST)
    size = tf.cast(tf.abs(tf.stop_gradient(bias)), tf.float64)
    # A product with a power of two is exact. Rounding the quotient to float64 and then to float32
    # is the same as rounding once: as in `_divided`, the quotient cannot be close enough to the
    # midpoint of two float32 numbers.
    of_bias = size * INVERSE_BIAS_STEPS / tf.cast(input_scale, tf.float64)
    of_bias = tf.cast(of_bias, largest.dtype)
    scales = tf.maximum(of_kernel, of_bias)
    ends = tf.where(of_kernel < of_bias, scales * MOST, largest)
    return rounded_kernel(kernel, scales, ends), rounded(bias, input_scale * scales)


def _divided(x: tf.Tensor, whole: int) -> tf.Tensor:
    """Divides by a constant, correctly rounded in every mode.

    Graphs and XLA multiply by the inverse of `whole`, n, instead of dividing by n. In float64, the
    relative error of this product is 2⁻⁵². The quotient of a float32 number and an odd n < 256 is
    never within 2⁻³⁴ of the midpoint of two float32 numbers. The cast therefore rounds the exact
    quotient and the product to the same number.
    """
    return tf.cast(tf.cast(x, tf.float64) / whole, x.dtype)
