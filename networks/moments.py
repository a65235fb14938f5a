"""The running mean and deviation of everything that was counted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

# A dimension whose deviation is a smaller part of its mean is constant, as far as float32 can say.
_CONSTANT = 1e-6


class RunningMoments:
    """Mean and deviation of rows of numbers, dimension by dimension.

    Args:
        name: What the rows are, in the plural, for messages.
        size: Length of a row.

    Attributes:
        count: How many rows were counted.
        mean: Their mean, `[size]`, float64.
    """

    def __init__(self, name: str, size: int) -> None:
        self.name, self.count = name, 0
        # In float64: a million additions to a float32 lose more than they add.
        self.mean, self._squares = np.zeros(size), np.zeros(size)

    def observe(self, rows: np.ndarray) -> None:
        """Counts rows `[N, size]`, by the pairwise update of Chan, Golub and LeVeque 1983.

        Raises:
            ValueError: If they have another shape; nothing is counted then.
            FloatingPointError: If one is not finite: it would stay for ever.
        """
        new = np.asarray(rows, np.float64)
        if new.ndim != 2 or not len(new) or new.shape[1:] != self.mean.shape:
            raise ValueError(
                f"{self.name} must have shape [N, {len(self.mean)}], got {new.shape}: pass a "
                "single one with an axis in front, as array[np.newaxis]"
            )
        if not math.isfinite(new.sum()):
            raise FloatingPointError(f"{self.name} must be finite; got {rows}")
        count = len(new)
        mean = new.mean(axis=0)
        away = mean - self.mean
        total = self.count + count
        self._squares += np.square(new - mean).sum(axis=0)
        self._squares += np.square(away) * (self.count * count / total)
        self.mean += away * (count / total)
        self.count = total

    def inverse_deviation(self, moves: Any = True) -> np.ndarray:
        """Returns 1 / deviation `[size]`, and 1 for what has not moved.

        Args:
            moves: `[size]` bool, which dimensions may have a deviation at all.
        """
        variance = self._squares / max(self.count, 1)
        moving = (np.sqrt(variance) > _CONSTANT * np.abs(self.mean)) & moves
        return np.asarray(np.where(moving, variance, 1.0) ** -0.5)

    def state(self) -> dict[str, Any]:
        """Returns what was counted, as JSON; floats come back exactly."""
        return {
            "count": self.count,
            "mean": self.mean.tolist(),
            "squares": self._squares.tolist(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state` returned.

        Raises:
            ValueError: If it is of rows of another size, not finite, or no numbers.
        """
        name = f"statistics of {self.name}"
        try:
            mean, squares = (np.array(state[key], np.float64) for key in ("mean", "squares"))
            count = int(state["count"])
        except TypeError as error:
            raise ValueError(f"{name} must be numbers: {error}") from error
        if mean.shape != self.mean.shape or squares.shape != mean.shape:
            raise ValueError(f"{name} must have shape {self.mean.shape}; got {mean.shape}")
        if not (np.isfinite(mean).all() and np.isfinite(squares).all() and (squares >= 0).all()):
            raise ValueError(f"{name} must be finite, and squares at least 0")
        if count < 0:
            raise ValueError(f"count of {self.name} must be at least 0; got {count}")
        self.count, self.mean, self._squares = count, mean, squares
