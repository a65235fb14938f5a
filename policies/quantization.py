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


def kernel_integers(kernel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the integers `[I, units]`, int8, of a kernel, and the scale of each column."""
    kernel = np.asarray(kernel, np.float32)
    largest = np.abs(kernel).max(axis=0)
    # A column of zeros has any scale.
    scales = np.where(largest > 0.0, largest, np.float32(1.0)) / np.float32(MOST)
    return np.rint(kernel / scales).astype(np.int8), scales


def bias_integers(
    bias: np.ndarray, input_scale: np.float32, kernel_scales: np.ndarray
) -> np.ndarray:
    """Returns the integers `[units]`, int32, of a bias."""
    steps = np.rint(np.asarray(bias, np.float32) / (input_scale * kernel_scales))
    return np.clip(steps, -(2.0**31), 2.0**31 - 128).astype(np.int32)


def quantized_layer(
    kernel: np.ndarray, bias: np.ndarray, input_scale: np.float32
) -> tuple[np.ndarray, np.ndarray]:
    """Rounds kernel and bias of a layer to their grids.

    The largest of each column stays what it is, and so does the scale that follows from it: 127
    times the scale can differ from it in its last bit.
    """
    q, scales = kernel_integers(kernel)
    largest = np.abs(np.asarray(kernel, np.float32)).max(axis=0)
    rounded = np.where(np.abs(q) == MOST, np.sign(q) * largest, q * scales)
    steps = bias_integers(bias, input_scale, scales)
    return rounded.astype(np.float32), (steps * (input_scale * scales)).astype(np.float32)
