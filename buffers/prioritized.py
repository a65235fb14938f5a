"""Samplers that prioritize rows with large temporal-difference errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from eagerly.buffers.sum_tree import SumTree
from eagerly.errors import whole_number
from eagerly.state import Saved

_FIRST_GROUP = 1024  # calls of `added` after which the new priorities are written to the tree
# Limits of priorities: the lowest can still be drawn, and sums in float64 cannot overflow.
_LEAST, _GREATEST = (float(end) for end in (np.finfo(np.float32).tiny, np.finfo(np.float32).max))


class _ByPriority(Saved):
    """Draws rows with probabilities proportional to their priorities.

    A new row gets the highest priority so far, so that it is drawn soon. All draws of a call use
    the priorities at the start of the call. New priorities are written in update order, so if a row
    was drawn twice, it gets the priority from the later update.

    Args:
        seed: An int or a `numpy.random.SeedSequence`.
        exponent: α, at least 0.
        highest_every: Updates between resets of the highest priority to the maximum over the stored
            rows. If 0, it is the maximum over all rows ever stored.

    Raises:
        ValueError: If an argument is out of range.
    """

    per_row = ("td_error",)
    _saved: ClassVar[tuple[str, ...]] = ("_generator", "_priorities", "_highest", "_fed_back")

    def __init__(
        self, seed: int | np.random.SeedSequence, *, exponent: float, highest_every: int
    ) -> None:
        if not exponent >= 0.0:
            raise ValueError(f"exponent must be at least 0; got {exponent}")
        self._highest_every, self._fed_back = whole_number("highest_every", highest_every), 0
        self._exponent = exponent
        self._generator = np.random.Generator(np.random.PCG64(seed))
        self._tree, self._count, self._highest = SumTree(), 0, 1.0
        # Ring positions and priorities of new rows that are not in the tree yet.
        self._new: list[tuple[np.ndarray, float]] = []

    @property
    def highest(self) -> float:
        """The highest priority so far, or since its last reset; new rows get it."""
        return self._highest

    def priorities(self) -> np.ndarray:
        """Returns a copy of all priorities by ring position, `[n]` float32."""
        self._write_new()
        return self._tree.values(slice(self._count)).astype(np.float32)

    def priority_of(self, td_error: np.ndarray) -> np.ndarray:
        """Maps temporal-difference errors to priorities of the same shape."""
        raise NotImplementedError

    def _uniform(self, shape: tuple[int, int]) -> np.ndarray:
        """Draws numbers `[K, B]` in [0, 1)."""
        return self._generator.random(shape)

    def draw(self, count: int, shape: tuple[int, int]) -> np.ndarray:
        """Draws ring positions `[K, B]` in [0, count).

        Raises:
            ValueError: If the highest priority would be reset in the middle of the K updates.
        """
        self._check_call(shape[0])
        self._write_new()
        sums = self._uniform(shape) * self._tree.total
        return self._tree.find(sums.reshape(-1)).reshape(shape)

    def added(self, places: np.ndarray) -> None:
        """Assigns the highest priority to new rows; the tree is updated when it is next needed."""
        self._new.append((places, self._highest))
        if len(self._new) >= _FIRST_GROUP:
            self._write_new()

    def _write_new(self) -> None:
        if not self._new:
            return
        places = np.concatenate([places for places, _ in self._new])
        values = np.repeat([value for _, value in self._new], [len(p) for p, _ in self._new])
        self._new = []
        self._tree.write(places, values)
        self._count = max(self._count, int(places.max()) + 1)

    def weights(self, places: np.ndarray) -> np.ndarray | None:
        """Returns None, because all rows have the same weight."""
        return None

    def feedback(self, places: np.ndarray, per_row: Mapping[str, np.ndarray]) -> None:
        """Updates the priorities of the drawn rows, unless an error is raised.

        Raises:
            ValueError: If the highest priority would be reset in the middle of these updates.
            FloatingPointError: If a temporal-difference error is NaN or infinite.
        """
        self._check_call(len(places))
        td_error = np.asarray(per_row["td_error"], np.float64)
        if not np.isfinite(td_error).all():
            update, row = np.argwhere(~np.isfinite(td_error))[0].tolist()
            raise FloatingPointError(
                f"td_error must be finite; got {td_error[update, row]} for row {row} of update "
                f"{update + 1} in this call: lower the learning rates, or scale the rewards"
            )
        with np.errstate(over="ignore"):
            found = self.priority_of(td_error).clip(_LEAST, _GREATEST).astype(np.float32)
        self._write_new()
        self._tree.write(places.reshape(-1), found.reshape(-1))
        self._highest = max(self._highest, float(found.max()))
        self._fed_back += len(places)
        if self._highest_every and self._fed_back % self._highest_every == 0:
            self._highest = float(self._tree.values(slice(self._count)).max())

    def _check_call(self, updates: int) -> None:
        """Raises a `ValueError` if the updates of a call extend beyond the next reset."""
        every = self._highest_every
        if every and updates > (left := every - self._fed_back % every):
            raise ValueError(
                "updates per call must not extend beyond the next reset of the highest priority "
                f"(every {every} updates, next in {left}); got {updates}"
            )

    @property
    def _priorities(self) -> np.ndarray:
        return self.priorities()

    @_priorities.setter
    def _priorities(self, priorities: np.ndarray) -> None:
        self._tree.write(np.arange(self._count), priorities)

    def _check(self, values: dict[str, Any]) -> None:
        if len(values["priorities"]) != self._count or not (values["priorities"] > 0).all():
            raise ValueError(f"priorities must be {self._count} positive numbers")
        if values["highest"] <= 0:
            raise ValueError(f"the highest priority must be above 0; got {values['highest']}")


class ProportionalSampler(_ByPriority):
    """Proportional prioritization: P(i) = p_i^α / Σ p_j^α with p = abs(δ) + 10⁻⁶.

    Schaul, Quan, Antonoglou and Silver 2016, "Prioritized Experience Replay", section 3.3, Eq. 1,
    and Algorithm 1. δ is the temporal-difference error of a row. Batches are stratified: one row is
    drawn from each of B equal parts of the priority sum (appendix B.2.1). The sampling bias is
    corrected by importance weights w = (N P(i))^-β, divided by the largest in the batch (section
    3.4). β rises linearly to 1 over `correction_updates`; in the paper it reaches 1 at the end of
    training.

    Args:
        seed: An int or a `numpy.random.SeedSequence`.
        exponent: α, at least 0; 0 samples uniformly.
        correction: Initial β, in [0, 1].
        correction_updates: Number of updates until β is 1, at least 1.
        highest_every: Updates between resets of the priority of new rows to the highest stored
            priority; 0: never.

    Raises:
        ValueError: If an argument is out of range.
    """

    _saved = (*_ByPriority._saved, "_updates")

    def __init__(
        self,
        seed: int | np.random.SeedSequence = 0,
        *,
        exponent: float = 0.6,
        correction: float = 0.4,
        correction_updates: int = 1_000_000,
        highest_every: int = 0,
    ) -> None:
        super().__init__(seed, exponent=exponent, highest_every=highest_every)
        if not 0.0 <= correction <= 1.0:
            raise ValueError(f"correction must be in [0, 1]; got {correction}")
        self._correction, self._updates = correction, 0
        self._correction_updates = whole_number("correction_updates", correction_updates, 1)

    def priority_of(self, td_error: np.ndarray) -> np.ndarray:
        """Returns (abs(δ) + 10⁻⁶)^α."""
        found: np.ndarray = (np.abs(td_error) + 1e-6) ** self._exponent
        return found

    def _uniform(self, shape: tuple[int, int]) -> np.ndarray:
        size = shape[1]
        return (np.arange(size) + self._generator.random(shape)) / size

    def draw(self, count: int, shape: tuple[int, int]) -> np.ndarray:
        """Draws ring positions `[K, B]` in [0, count), and advances the schedule of β."""
        places = super().draw(count, shape)
        self._updates += shape[0]
        return places

    def weights(self, places: np.ndarray) -> np.ndarray:
        """Returns importance weights `[K, B]`, with a maximum of 1 in each batch."""
        numbers = np.arange(self._updates - len(places), self._updates)
        progress = np.minimum(numbers / self._correction_updates, 1.0)
        beta = self._correction + (1.0 - self._correction) * progress
        # (N P(i))^-β / max = (p_i / min p)^-β: N and the sum cancel out.
        drawn = self._tree.values(places)
        relative = drawn.min(axis=1, keepdims=True) / drawn
        weights: np.ndarray = (relative ** beta[:, np.newaxis]).astype(np.float32)
        return weights


class LAPSampler(_ByPriority):
    """Loss-adjusted prioritization: P(i) ∝ max(abs(δ_i), 1)^α, for an unweighted Huber loss.

    Fujimoto, Meger and Precup 2020, "An Equivalence between Loss Functions and Non-Uniform Sampling
    in Experience Replay". If abs(δ) < 1, the Huber loss is quadratic and rows are drawn uniformly.
    Otherwise its gradient has constant magnitude, and rows are drawn according to their error.

    Args:
        seed: An int or a `numpy.random.SeedSequence`.
        exponent: α, at least 0.
        highest_every: Updates between resets of the priority of new rows to the highest stored
            priority; 0: never.

    Raises:
        ValueError: If an argument is out of range.
    """

    def __init__(
        self,
        seed: int | np.random.SeedSequence = 0,
        *,
        exponent: float = 0.4,
        highest_every: int = 0,
    ) -> None:
        super().__init__(seed, exponent=exponent, highest_every=highest_every)

    def priority_of(self, td_error: np.ndarray) -> np.ndarray:
        """Returns max(abs(δ), 1)^α."""
        found: np.ndarray = np.maximum(np.abs(td_error), 1.0) ** self._exponent
        return found
