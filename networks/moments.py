"""The running mean and standard deviation of a stream of rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eagerly.state import Lock, Saved

# Below this ratio of standard deviation to mean, a dimension is constant up to float32 precision.
_CONSTANT = 1e-6


class RunningMoments(Saved):
    """The running mean and standard deviation of each dimension of rows.

    Args:
        name: Plural noun for the rows, used in messages.
        size: Length of a row.

    Attributes:
        count: Number of rows so far.
        mean: Their mean, `[size]`, float64.
        lock: Held during an update. Hold it to read several attributes that belong together.
    """

    _saved = ("count", "mean", "_squares")

    def __init__(self, name: str, size: int) -> None:
        self.name, self.count = name, 0
        # float64, because rounding errors of a million additions in float32 would be too large.
        self.mean, self._squares = np.zeros(size), np.zeros(size)
        self.lock = Lock()

    def update(self, rows: np.ndarray) -> None:
        """Adds rows `[N, size]`, by the pairwise update of Chan, Golub and LeVeque 1983.

        If an error is raised, nothing changes.

        Raises:
            ValueError: If the shape is wrong.
            FloatingPointError: If a value is not finite. It would corrupt the moments forever.
        """
        new = np.asarray(rows, np.float64)
        if new.ndim != 2 or not len(new) or new.shape[1:] != self.mean.shape:
            raise ValueError(
                f"{self.name} must have shape [N, {len(self.mean)}], got {new.shape}: add a "
                "leading axis to a single row, as in array[np.newaxis]"
            )
        if not math.isfinite(new.sum()):
            raise FloatingPointError(f"{self.name} must be finite; got {rows}")
        count = len(new)
        mean = new.mean(axis=0)
        with self.lock:
            away = mean - self.mean
            total = self.count + count
            self._squares += np.square(new - mean).sum(axis=0)
            self._squares += np.square(away) * (self.count * count / total)
            self.mean += away * (count / total)
            self.count = total

    def state(self) -> dict[str, Any]:
        """Returns the moments."""
        with self.lock:
            return super().state()

    def inverse_deviation(self, floor: float = 0.0) -> np.ndarray:
        """Returns 1 / max(standard deviation, floor), `[size]`, or 1 for constant dimensions.

        Dimensions whose inverse deviation float32 cannot represent count as constant.
        """
        with self.lock:
            variance = self._squares / max(self.count, 1)
            least = np.maximum(_CONSTANT * np.abs(self.mean), np.finfo(np.float32).tiny)
            moving = np.sqrt(variance) > least
        return np.asarray(np.where(moving, np.maximum(variance, floor**2), 1.0) ** -0.5)

    def _check(self, values: dict[str, Any]) -> None:
        if (values["squares"] < 0).any():
            raise ValueError(f"squares of {self.name} must be at least 0; got {values['squares']}")
