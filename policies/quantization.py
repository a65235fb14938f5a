"""The grids of 8-bit integers that quantised actors compute on (Jacob et al. 2018).

A number r stands for an integer q as r = scale (q - zero_point) (Eq. 1). Activations have one scale
and zero point for a tensor, and q in [-128, 127]; kernels have a scale for each column, no zero
point, and q in [-127, 127]; biases have the product of both scales, and 32 bits.

An actor's grids follow from `quantization/low` and `quantization/high`: the range of its inputs, of
what each hidden layer gives, of continuous dimensions before their tanh, and of logits, in this
order. What comes out of the tanh is on the grid of 1/128, whose q is in [-128, 127], too.
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
    """Returns scale and zero point of a range, which is widened to hold 0.

    0 is on the grid, so that the range moves by up to half a step. Both are computed in float64 and
    rounded once, halves up, as TensorFlow's converter does: float32 gives another scale for every
    seventh range, and another zero point for many that are symmetric. `networks.quantization` has
    the same operations for tensors, which give the same bits.

    Args:
        low: Its least number.
        high: Its greatest number; one of both must not be 0.
    """
    least, most = min(float(low), 0.0), max(float(high), 0.0)
    whole = most - least
    # Of a symmetric range the zero point is a half, exactly so in this order of operations.
    return np.float32(whole * INVERSE_STEPS), math.floor(LEAST + 0.5 - least * STEPS / whole)


def integers(x: np.ndarray, low: float, high: float) -> np.ndarray:
    """Returns the integers that stand for numbers on the grid of a range, as float32."""
    scale, zero_point = grid(low, high)
    q = np.rint(np.asarray(x, np.float32) / scale)
    q += np.float32(zero_point)
    np.maximum(q, np.float32(LEAST), out=q)
    return np.minimum(q, np.float32(MOST), out=q)


def quantized(x: np.ndarray, low: float, high: float) -> np.ndarray:
    """Rounds numbers to the grid of a range; those outside go to its ends."""
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

    It makes the largest weight 127, or, where that is more, the bias 2^30 of its steps: a bias that
    is so much larger than what its column adds to it would leave 32 bits otherwise.

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
        Those of the kernel, `[I, units]` int8, of the bias, `[units]` int32 and not much beyond
        2^30, and the scale of each column, `[units]` float32.
    """
    scales = column_scales(kernel, bias, input_scale)
    steps = np.rint(np.asarray(bias, np.float32) / (input_scale * scales))
    integers = np.rint(np.asarray(kernel, np.float32) / scales)
    return integers.astype(np.int8), steps.astype(np.int32), scales


def quantized_layer(
    kernel: np.ndarray, bias: np.ndarray, input_scale: np.float32
) -> tuple[np.ndarray, np.ndarray]:
    """Rounds kernel and bias of a layer to their grids.

    A weight that makes the scale of its column stays what it is, and so does the scale that follows
    from it: 127 times the scale can differ from it in its last bit.
    """
    q, steps, scales = layer_integers(kernel, bias, input_scale)
    ends = _scales(kernel, bias, input_scale)[1]
    rounded = np.where(np.abs(q) == MOST, np.sign(q) * ends, q * scales)
    return rounded.astype(np.float32), (steps * (input_scale * scales)).astype(np.float32)


def _scales(
    kernel: np.ndarray, bias: np.ndarray, input_scale: np.float32
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the scale of each column, and the weight that 127 stands for."""
    largest = np.abs(np.asarray(kernel, np.float32)).max(axis=0)
    of_kernel = np.where(largest >= LEAST_WEIGHT, largest, np.float32(1.0)) / np.float32(MOST)
    size = np.abs(np.asarray(bias, np.float32)).astype(np.float64)
    of_bias = (size * INVERSE_BIAS_STEPS / np.float64(input_scale)).astype(np.float32)
    scales = np.maximum(of_kernel, of_bias)
    return scales, np.where(of_kernel < of_bias, scales * np.float32(MOST), largest)
