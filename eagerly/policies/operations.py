"""The operations used by built-in actors: a protocol, and its NumPy implementation.

`policies.network` defines each actor once, in terms of these operations. NumPy executes them;
exports build graphs from the same code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from eagerly.policies.integer_grids import quantized

LAYER_NORM_EPSILON = 1e-5
# Minimum divisor in `average_l1_norm`.
AVERAGE_L1_EPSILON = 1e-8
Window = tuple[int, int]
# Kernel `[height, width, inputs, filters]`, bias and strides.
Convolution = tuple[np.ndarray, np.ndarray, Window]


class Operations(Protocol):
    """Operations on batches `[N, ...]`.

    Like arrays, batches also support +, - and *, and division by a number. Weights are NumPy
    arrays.
    """

    def linear(self, x: Any, kernel: np.ndarray, bias: np.ndarray) -> Any:
        """Maps `[N, I]` to `[N, units]`; the caller may modify the result in place."""

    def matmul(self, a: Any, b: Any) -> Any:
        """Multiplies `[..., I, K]` by `[..., K, J]`."""

    def activation(self, name: str, x: Any) -> Any:
        """Applies one of `ACTIVATIONS`."""

    def layer_norm(
        self, x: Any, gamma: np.ndarray, beta: np.ndarray, *, epsilon: float = LAYER_NORM_EPSILON
    ) -> Any:
        """Normalizes `[N, units]` over its last axis."""

    def centered(self, images: Any) -> Any:
        """Subtracts its mean from each image of `[N, height, width, channels]`."""

    def convolved(self, images: Any, layers: Sequence[Convolution]) -> Any:
        """Applies convolutions without padding, each followed by a relu, to images.

        Returns:
            The features, in the order `[N, height, width, filters]`; the shape may be flat.
        """

    def average_l1_norm(self, x: Any) -> Any:
        """Divides by the mean absolute value over the last axis, at least `AVERAGE_L1_EPSILON`."""

    def tanh(self, x: Any) -> Any:
        """Returns the hyperbolic tangent."""

    def sigmoid(self, x: Any) -> Any:
        """Returns 1 / (1 + exp(-x))."""

    def masked_softmax(self, scores: Any, seen: Any) -> Any:
        """Returns the softmax over the last axis, exactly 0 where `seen` is false."""

    def minimum(self, x: Any, most: float) -> Any:
        """Returns the elementwise minimum of x and a number."""

    def less(self, a: np.ndarray, b: Any) -> Any:
        """Returns elementwise whether the constants `a` are less than `b`."""

    def concat(self, parts: Sequence[Any], axis: int = -1) -> Any:
        """Concatenates parts along an axis."""

    def part(self, x: Any, start: int, stop: int, axis: int = -1) -> Any:
        """Returns a slice along an axis."""

    def reshape(self, x: Any, shape: tuple[int, ...]) -> Any:
        """Reshapes x; -1 is the batch size N."""

    def transpose(self, x: Any, axes: tuple[int, ...]) -> Any:
        """Permutes the axes."""

    def quantized(self, x: Any, low: float, high: float) -> Any:
        """Rounds to the grid of `policies.integer_grids.grid(low, high)`."""


def _silu(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # exp overflows to inf for very negative x: x / inf = -0.0
        return x / (1.0 + np.exp(-x))


ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": partial(np.maximum, 0.0),
    "tanh": np.tanh,
    "elu": lambda x: np.maximum(x, 0.0) + np.expm1(np.minimum(x, 0.0)),
    "silu": _silu,
    "leaky_relu": lambda x: np.where(x > 0.0, x, 0.01 * x),
}


class NumpyOperations:
    """`Operations` on NumPy arrays."""

    def linear(self, x: np.ndarray, kernel: np.ndarray, bias: np.ndarray) -> np.ndarray:
        """Maps `[N, I]` to `[N, units]`."""
        hidden = x @ kernel
        hidden += bias
        return hidden

    def matmul(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Multiplies `[..., I, K]` by `[..., K, J]`."""
        return a @ b

    def activation(self, name: str, x: np.ndarray) -> np.ndarray:
        """Applies one of `ACTIVATIONS`."""
        return ACTIVATIONS[name](x)

    def layer_norm(
        self,
        x: np.ndarray,
        gamma: np.ndarray,
        beta: np.ndarray,
        *,
        epsilon: float = LAYER_NORM_EPSILON,
    ) -> np.ndarray:
        """Normalizes `[N, units]` over its last axis."""
        x = x - x.mean(axis=-1, keepdims=True)
        variance = np.square(x).mean(axis=-1, keepdims=True)
        return x / np.sqrt(variance + epsilon) * gamma + beta

    def centered(self, images: np.ndarray) -> np.ndarray:
        """Subtracts its mean from each image."""
        return images - images.mean(axis=(1, 2, 3), keepdims=True)

    def convolved(self, images: np.ndarray, layers: Sequence[Convolution]) -> np.ndarray:
        """Applies convolutions, each followed by a relu, to images; returns `[N, features]`."""
        # Looping over images keeps each one in the CPU cache, which halves the time for four.
        return np.array([_convolved(image, layers) for image in images], images.dtype)

    def average_l1_norm(self, x: np.ndarray) -> np.ndarray:
        """Divides by the mean absolute value over the last axis."""
        # Actors call this at every step, with a single row: `mean` would take twice as long.
        mean = np.add.reduce(np.abs(x), axis=-1, keepdims=True)
        mean /= x.shape[-1]
        return x / np.maximum(mean, AVERAGE_L1_EPSILON)

    def tanh(self, x: np.ndarray) -> np.ndarray:
        """Returns the hyperbolic tangent."""
        return np.tanh(x)

    def sigmoid(self, x: np.ndarray) -> np.ndarray:
        """Returns 1 / (1 + exp(-x))."""
        with np.errstate(over="ignore"):
            return 1.0 / (1.0 + np.exp(-x))

    def masked_softmax(self, scores: np.ndarray, seen: np.ndarray) -> np.ndarray:
        """Returns the softmax over the last axis, exactly 0 where `seen` is false."""
        highest = np.where(seen, scores, np.finfo(scores.dtype).min).max(axis=-1, keepdims=True)
        raised = np.exp(np.where(seen, scores - highest, 0.0)) * seen
        return raised / raised.sum(axis=-1, keepdims=True)

    def minimum(self, x: np.ndarray, most: float) -> np.ndarray:
        """Returns the elementwise minimum of x and a number."""
        return np.minimum(x, most)

    def less(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Returns elementwise whether the constants `a` are less than `b`."""
        return a < b

    def concat(self, parts: Sequence[np.ndarray], axis: int = -1) -> np.ndarray:
        """Concatenates parts along an axis."""
        return np.concatenate(parts, axis=axis)

    def part(self, x: np.ndarray, start: int, stop: int, axis: int = -1) -> np.ndarray:
        """Returns a slice along an axis."""
        if axis == -1:
            return x[..., start:stop]
        return x[(slice(None),) * axis + (slice(start, stop),)]

    def reshape(self, x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Reshapes x; -1 is the batch size N."""
        return x.reshape(shape)

    def transpose(self, x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
        """Permutes the axes."""
        return x.transpose(axes)

    def quantized(self, x: np.ndarray, low: float, high: float) -> np.ndarray:
        """Rounds to the grid of `policies.integer_grids.grid(low, high)`."""
        return quantized(x, low, high)


def _convolved(image: np.ndarray, layers: Sequence[Convolution]) -> np.ndarray:
    """Maps an image `[H, W, C]` through unpadded convolutions to `[h · w · filters]`."""
    for kernel, bias, (down, right) in layers:
        *window, channels, filters = kernel.shape
        windows = np.lib.stride_tricks.sliding_window_view(image, window, axis=(0, 1))
        windows = windows[::down, ::right].transpose(0, 1, 3, 4, 2)
        rows = windows.reshape(-1, math.prod(window) * channels)
        found = rows @ kernel.reshape(-1, filters)
        found += bias
        np.maximum(found, 0.0, out=found)
        image = found.reshape(*windows.shape[:2], filters)
    return image.ravel()
