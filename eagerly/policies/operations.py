"""The operations that actors are built from: a protocol, and its implementation in NumPy.

`policies.network` defines each actor once, in terms of these operations. NumPy computes them; in an
export the same code builds a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from eagerly.policies.integer_grids import quantized

LAYER_NORM_EPSILON = 1e-5
# The least mean of absolute values that `average_l1_norm` divides by.
AVERAGE_L1_EPSILON = 1e-8


class Operations(Protocol):
    """Operations on batches `[N, ...]`; +, - and * work on these as on arrays.

    Weights are NumPy arrays.
    """

    def linear(self, x: Any, kernel: np.ndarray, bias: np.ndarray) -> Any:
        """Maps `[N, I]` to `[N, units]`; the caller may change the result in place."""

    def matmul(self, a: Any, b: Any) -> Any:
        """Multiplies `[..., I, K]` by `[..., K, J]`."""

    def activation(self, name: str, x: Any) -> Any:
        """Applies one of `ACTIVATIONS`."""

    def layer_norm(self, x: Any, gamma: np.ndarray, beta: np.ndarray) -> Any:
        """Normalises `[N, units]` over its last axis, with `LAYER_NORM_EPSILON`."""

    def average_l1_norm(self, x: Any) -> Any:
        """Divides by the mean absolute value over the last axis, at least `AVERAGE_L1_EPSILON`."""

    def tanh(self, x: Any) -> Any:
        """Returns the hyperbolic tangent."""

    def sigmoid(self, x: Any) -> Any:
        """Returns 1 / (1 + exp(-x))."""

    def masked_softmax(self, scores: Any, seen: Any) -> Any:
        """Returns weights over the last axis that are exactly 0 where `seen` is false."""

    def minimum(self, x: Any, most: float) -> Any:
        """Returns the smaller of x and a number."""

    def less(self, a: np.ndarray, b: Any) -> Any:
        """Returns where the constants `a` are less than `b`."""

    def concat(self, parts: Sequence[Any], axis: int = -1) -> Any:
        """Joins parts along an axis."""

    def part(self, x: Any, start: int, stop: int, axis: int = -1) -> Any:
        """Takes a range of an axis."""

    def reshape(self, x: Any, shape: tuple[int, ...]) -> Any:
        """Changes the shape; -1 stands for N."""

    def transpose(self, x: Any, axes: tuple[int, ...]) -> Any:
        """Reorders axes."""

    def quantized(self, x: Any, low: float, high: float) -> Any:
        """Rounds to the grid of `policies.quantization.grid(low, high)`."""


def _silu(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # exp overflows to inf for very negative x: x / inf = -0.0
        return x / (1.0 + np.exp(-x))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return 1.0 / (1.0 + np.exp(-x))


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

    def layer_norm(self, x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
        """Normalises `[N, units]` over its last axis."""
        x = x - x.mean(axis=-1, keepdims=True)
        variance = np.square(x).mean(axis=-1, keepdims=True)
        return x / np.sqrt(variance + LAYER_NORM_EPSILON) * gamma + beta

    def average_l1_norm(self, x: np.ndarray) -> np.ndarray:
        """Divides by the mean absolute value over the last axis."""
        # An actor does this at every step, for one row: `mean` would take twice as long.
        mean = np.add.reduce(np.abs(x), axis=-1, keepdims=True)
        mean /= x.shape[-1]
        return x / np.maximum(mean, AVERAGE_L1_EPSILON)

    def tanh(self, x: np.ndarray) -> np.ndarray:
        """Returns the hyperbolic tangent."""
        return np.tanh(x)

    def sigmoid(self, x: np.ndarray) -> np.ndarray:
        """Returns 1 / (1 + exp(-x))."""
        return _sigmoid(x)

    def masked_softmax(self, scores: np.ndarray, seen: np.ndarray) -> np.ndarray:
        """Returns weights over the last axis that are exactly 0 where `seen` is false."""
        highest = np.where(seen, scores, np.finfo(scores.dtype).min).max(axis=-1, keepdims=True)
        raised = np.exp(np.where(seen, scores - highest, 0.0)) * seen
        return raised / raised.sum(axis=-1, keepdims=True)

    def minimum(self, x: np.ndarray, most: float) -> np.ndarray:
        """Returns the smaller of x and a number."""
        return np.minimum(x, most)

    def less(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Returns where the constants `a` are less than `b`."""
        return a < b

    def concat(self, parts: Sequence[np.ndarray], axis: int = -1) -> np.ndarray:
        """Joins parts along an axis."""
        return np.concatenate(parts, axis=axis)

    def part(self, x: np.ndarray, start: int, stop: int, axis: int = -1) -> np.ndarray:
        """Takes a range of an axis."""
        if axis == -1:
            return x[..., start:stop]
        return x[(slice(None),) * axis + (slice(start, stop),)]

    def reshape(self, x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Changes the shape; -1 stands for N."""
        return x.reshape(shape)

    def transpose(self, x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
        """Reorders axes."""
        return x.transpose(axes)

    def quantized(self, x: np.ndarray, low: float, high: float) -> np.ndarray:
        """Rounds to the grid of `policies.quantization.grid(low, high)`."""
        return quantized(x, low, high)
