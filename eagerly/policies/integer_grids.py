"""The grids of 8-bit integers that quantised actors compute on (Jacob et al. 2018).

An integer q represents the number r = scale (q - zero_point) (Eq. 1). Activations have one scale
and zero point per tensor, and q in [-128, 127]. Kernels have one scale per column, no zero point,
and q in [-127, 127]. Biases have the product of both scales, and 32 bits.

An actor's grids follow from `quantization/low` and `quantization/high`: the ranges of its inputs,
of the outputs of each hidden layer, of continuous dimensions before their tanh, and of logits, in
this order. After the tanh, actions are multiples of 1/128, also with q in [-128, 127]: the largest
is 127/128.
"""

from __future__ import annotations

import functools
import math

import numpy as np

LEAST, MOST = -128, 127
STEPS = MOST - LEAST
# Graphs and XLA make a division by a constant a product with its inverse. In float64 these differ
# too little to be seen in float32, but once in a hundred million.
INVERSE_STEPS = 1.0 / STEPS
TANH_SCALE = 1.0 / 128.0
# Steps of a bias: half of what 32 bits hold, so that sums have the other half.
INVERSE_BIAS_STEPS = 2.0**-30
# A column whose weights are all smaller is one of zeros, and has any scale. Scales of smaller ones
# would be denormal, which TensorFlow makes 0 and NumPy does not.
LEAST_WEIGHT = np.float32(1e-30)
# Before a tanh more is not needed: it is 0.9993 there.
SATURATED = 4.0


@functools.lru_cache(maxsize=1024)  # of the layers of some actors: each call of one asks again
def grid(low: float, high: float) -> tuple[np.float32, int]:
    """Returns scale and zero point of a range, which is extended to contain 0.

    0 is on the grid, which shifts the range by up to half a step. Scale and zero point are computed
    in float64 and rounded once, halves up, as TensorFlow's converter does. In float32, one range in
    seven would get a different scale, and many symmetric ranges a different zero point.
    `networks.quantization` has the same operations for tensors, with the same bits.

    Args:
        low: The minimum of the range.
        high: The maximum of the range; not both may be 0.
    """
    least, most = min(float(low), 0.0), max(float(high), 0.0)
    whole = most - least
    # Of a symmetric range the zero point is a half, exactly so in this order of operations.
    return np.float32(whole * INVERSE_STEPS), math.floor(LEAST + 0.5 - least * STEPS / whole)


def integers(x: np.ndarray, low: float, high: float) -> np.ndarray:
    """Returns the integers that represent numbers on the grid of a range, as float32."""
    scale, zero_point = grid(low, high)
    q = np.rint(np.asarray(x, np.float32) / scale)
    q += np.float32(zero_point)
    np.maximum(q, np.float32(LEAST), out=q)
    return np.minimum(q, np.float32(MOST), out=q)


def quantized(x: np.ndarray, low: float, high: float) -> np.ndarray:
    """Rounds numbers to the grid of a range; numbers outside are clipped to its ends."""
    scale, zero_point = grid(low, high)
    q = integers(x, low, high)
    q -= np.float32(zero_point)
    q *= scale
    return q


def quantized_tanh(x: np.ndarray) -> np.ndarray:
    """Returns the hyperbolic tangent, rounded to the grid of 1/128."""
    q = np.rint(np.tanh(x) * np.float32(1.0 / TANH_SCALE))
    return np.minimum(q, np.float32(MOST)) * np.float32(TANH_SCALE)


def column_scales(kernel: np.ndarray, bias: np.ndarray, input_scale: np.float32) -> np.ndarray:
    """Returns the scale of each column of a kernel, `[units]` float32.

    The largest weight becomes 127. If the bias would then take more than 2^30 steps, the scale is
    raised until it takes 2^30: a bias much larger than the weights of its column would otherwise
    not fit into 32 bits.

    Args:
        kernel: `[I, units]`.
        bias: `[units]`.
        input_scale: The scale of the layer's inputs.
    """
    return _scales(kernel, bias, input_scale)[0]


def layer_integers(
    kernel: np.ndarray, bias: np.ndarray, input_scale: np.float32
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the integers of a layer's weights.

    Args:
        kernel: `[I, units]`.
        bias: `[units]`.
        input_scale: The scale of the layer's inputs.

    Returns:
        The kernel as `[I, units]` int8, the bias as `[units]` int32, not much beyond 2^30, and the
        scale of each column, `[units]` float32.
    """
    scales = column_scales(kernel, bias, input_scale)
    steps = np.rint(np.asarray(bias, np.float32) / (input_scale * scales))
    integers = np.rint(np.asarray(kernel, np.float32) / scales)
    return integers.astype(np.int8), steps.astype(np.int32), scales


def quantized_layer(
    kernel: np.ndarray, bias: np.ndarray, input_scale: np.float32
) -> tuple[np.ndarray, np.ndarray]:
    """Rounds kernel and bias of a layer to their grids.

    The weight that determines the scale of its column keeps its value, and the scale with it: 127
    times the scale can differ from that weight in the last bit.
    """
    q, steps, scales = layer_integers(kernel, bias, input_scale)
    ends = _scales(kernel, bias, input_scale)[1]
    rounded = np.where(np.abs(q) == MOST, np.sign(q) * ends, q * scales)
    return rounded.astype(np.float32), (steps * (input_scale * scales)).astype(np.float32)


def _scales(
    kernel: np.ndarray, bias: np.ndarray, input_scale: np.float32
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the scale of each column, and the weight that 127 represents."""
    largest = np.abs(np.asarray(kernel, np.float32)).max(axis=0)
    of_kernel = np.where(largest >= LEAST_WEIGHT, largest, np.float32(1.0)) / np.float32(MOST)
    size = np.abs(np.asarray(bias, np.float32)).astype(np.float64)
    of_bias = (size * INVERSE_BIAS_STEPS / np.float64(input_scale)).astype(np.float32)
    scales = np.maximum(of_kernel, of_bias)
    return scales, np.where(of_kernel < of_bias, scales * np.float32(MOST), largest)
