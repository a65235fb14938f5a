"""Measures the ranges of an actor's activations on given rows, for grids of 8-bit integers."""

from __future__ import annotations

import numpy as np

from eagerly.policies.integer_grids import SATURATED
from eagerly.policies.network import ActorNetwork
from eagerly.policies.operations import NumpyOperations


class RangeRecorder(NumpyOperations):
    """NumPy operations that record the outputs of each hidden layer.

    Attributes:
        hidden: The results of activations, in order.
    """

    def __init__(self) -> None:
        self.hidden: list[np.ndarray] = []

    def activation(self, name: str, x: np.ndarray) -> np.ndarray:
        """Applies an activation and records its result."""
        self.hidden.append(super().activation(name, x))
        return self.hidden[-1]


def measured_ranges(network: ActorNetwork, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Measures the ranges of an MLP that is not quantised.

    Args:
        network: The network.
        rows: Scaled observations `[N, V]` without their mask, at least one.

    Returns:
        `quantization/low` and `quantization/high`, `[L + 3]` float32 each. All ranges contain 0.
        ActionHeadOps that the actor does not have, or that are always 0, get -1 to 1.
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
    """Returns minimum and maximum, extended to 0; of no numbers, or only zeros, -1 and 1."""
    low, high = min(float(x.min(initial=0.0)), 0.0), max(float(x.max(initial=0.0)), 0.0)
    return (low, high) if low < high else (-1.0, 1.0)
