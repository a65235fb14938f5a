"""The 8-bit integer grids on which quantized actors compute (Jacob et al. 2018).

An integer q represents the number r = scale (q - zero_point) (Eq. 1). Activations have one scale
and zero point per tensor, and q in [-128, 127]. Kernels have one scale per column, no zero point,
and q in [-127, 127]. Biases have 32 bits; their scale is the input's scale times the column's.

The grids of an actor are computed from the weights `quantization/low` and `quantization/high`. They
contain the ranges of the inputs, of the outputs of each hidden layer, of continuous dimensions
before their tanh, and of logits, in this order. After the tanh, actions are multiples of 1/128,
again with q in [-128, 127]: the largest action is 127/128.
"""

from __future__ import annotations

import functools
import math

import numpy as np

LEAST, MOST = -128, 127
STEPS = MOST - LEAST
# TensorFlow graphs and XLA replace division by a constant with multiplication by its inverse, so
# NumPy also multiplies. In float64, this changes the float32 result only once in 100 million cases.
INVERSE_STEPS = 1.0 / STEPS
TANH_SCALE = 1.0 / 128.0
# Biases use at most half of the int32 range, so that sums can use the other half.
INVERSE_BIAS_STEPS = 2.0**-30
# A kernel column with only smaller weights counts as zero and gets an arbitrary scale. A scale
# computed from its weights could be denormal, which TensorFlow flushes to 0 and NumPy does not.
LEAST_WEIGHT = np.float32(1e-30)
# Range limit of inputs to tanh: tanh(4) is 0.9993.
SATURATED = 4.0


@functools.lru_cache(maxsize=1024)  # called for each layer at each step
def grid(low: float, high: float) -> tuple[np.float32, int]:
    """Returns scale and zero point of a range, which is extended to contain 0.

    The grid contains 0, which shifts the range by up to half a step. Scale and zero point are
    computed in float64 and rounded once, half up, as TensorFlow's converter does. In float32, one
    range in seven would get a different scale, and many symmetric ranges a different zero point.
    `networks.quantization` performs the same operations on tensors, bit for bit.

    Args:
        low: The minimum of the range.
        high: The maximum of the range. `low` and `high` must not both be 0.
    """
    least, most = min(float(low), 0.0), max(float(high), 0.0)
    whole = most - least
    # For a symmetric range, this order of operations gives exactly -0.5, which is rounded up.
    return np.float32(whole * INVERSE_STEPS), math.floor(LEAST + 0.5 - least * STEPS / whole)


def integers(x: np.ndarray, low: float, high: float) -> np.ndarray:
    """Quantizes numbers to the grid of a range and returns the integers as float32."""
    scale, zero_point = grid(low, high)
    q = np.rint(np.asarray(x, np.float32) / scale)
    q += np.float32(zero_point)
    np.maximum(q, np.float32(LEAST), out=q)
    return np.minimum(q, np.float32(MOST), out=q)


def quantized(x: np.ndarray, low: float, high: float) -> np.ndarray:
    """Rounds numbers to the grid of a range and clips them to its ends."""
    scale, zero_point = grid(low, high)
    q = integers(x, low, high)
    q -= np.float32(zero_point)
    q *= scale
    return q


def quantized_tanh(x: np.ndarray) -> np.ndarray:
    """Returns the hyperbolic tangent, rounded to multiples of 1/128."""
    q = np.rint(np.tanh(x) * np.float32(1.0 / TANH_SCALE))
    return np.minimum(q, np.float32(MOST)) * np.float32(TANH_SCALE)


def column_scales(kernel: np.ndarray, bias: np.ndarray, input_scale: np.float32) -> np.ndarray:
    """Returns the scale of each kernel column, `[units]` float32.

    The largest weight of a column becomes 127. If the bias would then take more than 2^30 steps,
    the scale is raised until it takes 2^30. Otherwise, a bias much larger than the weights of its
    column would overflow 32 bits.

    Args:
        kernel: `[I, units]`.
        bias: `[units]`.
        input_scale: The scale of the layer's inputs.
    """
    return _scales(kernel, bias, input_scale)[0]


def layer_integers(
    kernel: np.ndarray, bias: np.ndarray, input_scale: np.float32
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the weights of a layer as integers.

    Args:
        kernel: `[I, units]`.
        bias: `[units]`.
        input_scale: The scale of the layer's inputs.

    Returns:
        The kernel as `[I, units]` int8, the bias as `[units]` int32, at most slightly above 2^30,
        and the scale of each column, `[units]` float32.
    """
    scales = column_scales(kernel, bias, input_scale)
    steps = np.rint(np.asarray(bias, np.float32) / (input_scale * scales))
    integers = np.rint(np.asarray(kernel, np.float32) / scales)
    return integers.astype(np.int8), steps.astype(np.int32), scales


def quantized_layer(
    kernel: np.ndarray, bias: np.ndarray, input_scale: np.float32
) -> tuple[np.ndarray, np.ndarray]:
    """Rounds the kernel and bias of a layer to their grids.

    The weight that determines the scale of its column keeps its value, so that quantizing the
    rounded kernel gives the same scale. 127 times the scale can differ from that weight in the last
    bit.
    """
    q, steps, scales = layer_integers(kernel, bias, input_scale)
    ends = _scales(kernel, bias, input_scale)[1]
    rounded = np.where(np.abs(q) == MOST, np.sign(q) * ends, q * scales)
    return rounded.astype(np.float32), (steps * (input_scale * scales)).astype(np.float32)


def _scales(
    kernel: np.ndarray, bias: np.ndarray, input_scale: np.float32
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the scale of each column, and the weight that the integer 127 represents."""
    largest = np.abs(np.asarray(kernel, np.float32)).max(axis=0)
    of_kernel = np.where(largest >= LEAST_WEIGHT, largest, np.float32(1.0)) / np.float32(MOST)
    size = np.abs(np.asarray(bias, np.float32)).astype(np.float64)
    of_bias = (size * INVERSE_BIAS_STEPS / np.float64(input_scale)).astype(np.float32)
    scales = np.maximum(of_kernel, of_bias)
    return scales, np.where(of_kernel < of_bias, scales * np.float32(MOST), largest)
