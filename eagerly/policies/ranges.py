"""Measures the activation ranges of an actor on given rows, for 8-bit quantization."""

from __future__ import annotations

import numpy as np

from eagerly.policies.integer_grids import SATURATED
from eagerly.policies.network import ActorNetwork
from eagerly.policies.operations import NumpyOperations


class RangeRecorder(NumpyOperations):
    """NumPy operations that record the outputs of each hidden layer.

    Attributes:
        hidden: The recorded activations, in order.
    """

    def __init__(self) -> None:
        self.hidden: list[np.ndarray] = []

    def activation(self, name: str, x: np.ndarray) -> np.ndarray:
        """Applies an activation and records its output."""
        self.hidden.append(super().activation(name, x))
        return self.hidden[-1]


def measured_ranges(network: ActorNetwork, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Measures the activation ranges of an MLP that is not quantized.

    Args:
        network: The network.
        rows: Scaled observations `[N, V]` without their mask, at least one.

    Returns:
        `quantization/low` and `quantization/high`, `[L + 3]` float32 each for L hidden layers. All
        ranges contain 0. Ranges of outputs that the actor does not have, or that are always 0, are
        -1 to 1.
    """
    recorder = RangeRecorder()
    outputs = network.outputs(recorder, rows)
    count = network.architecture.head.continuous
    ranges = [
        _ends(rows),
        *map(_ends, recorder.hidden),
        _ends(np.clip(outputs[:, :count], -SATURATED, SATURATED)),
        _ends(outputs[:, count:]),
    ]
    low, high = np.array(ranges, np.float32).T
    return low, high


def _ends(x: np.ndarray) -> tuple[float, float]:
    """Returns the minimum and maximum, extended to 0; -1 and 1 if empty or all zeros."""
    low, high = min(float(x.min(initial=0.0)), 0.0), max(float(x.max(initial=0.0)), 0.0)
    return (low, high) if low < high else (-1.0, 1.0)
