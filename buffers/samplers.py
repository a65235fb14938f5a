"""Samplers, which select rows of a replay buffer and return their importance weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np

from eagerly.state import Saved, Stateful


class Sample(NamedTuple):
    """Samples for K updates.

    Attributes:
        rows: `[K, B, *layout.sample_shape]`; the next draw of the same sizes reuses the array.
        weights: Importance weights `[K, B]` float32, or None if all are equal.
    """

    rows: np.ndarray
    weights: np.ndarray | None


class Sampler(Stateful, Protocol):
    """Selects the rows to sample.

    In a `ReplayBuffer`, it draws ring positions. A row keeps its position until it is overwritten,
    so a sampler can store one priority per position. In buffers of episodes, it draws indices of
    steps or windows, which change as steps are added. These buffers reject samplers whose `per_row`
    is not empty.
    """

    @property
    def per_row(self) -> tuple[str, ...]:
        """Names of the per-row values that `feedback` needs, such as "td_error"; may be empty."""

    def draw(self, count: int, shape: tuple[int, int]) -> np.ndarray:
        """Draws integers in [0, count), of shape `[K, B]`."""

    def added(self, places: np.ndarray) -> None:
        """Called after rows are written to ring positions `[n]`, oldest first.

        Also called for rows that are restored from a checkpoint, before `restore`, and once more
        after `feedback` for rows that another thread added since the draw.
        """

    def weights(self, places: np.ndarray) -> np.ndarray | None:
        """Returns the importance weights `[K, B]` of a draw, float32, or None if all are equal."""

    def feedback(self, places: np.ndarray, per_row: Mapping[str, np.ndarray]) -> None:
        """Called with the values that the updates of a call computed for their rows.

        Args:
            places: The draw `[K, B]`, in update order; its entries can repeat.
            per_row: Values `[K, B]` for each name in `per_row`.
        """


class UniformSampler(Saved):
    """Draws all rows with the same probability, with replacement.

    Args:
        seed: An int or a `numpy.random.SeedSequence`.

    Attributes:
        generator: The random number generator.
    """

    per_row: tuple[str, ...] = ()
    _saved = ("generator",)

    def __init__(self, seed: int | np.random.SeedSequence = 0) -> None:
        self.generator = np.random.Generator(np.random.PCG64(seed))

    def draw(self, count: int, shape: tuple[int, ...]) -> np.ndarray:
        """Draws integers in [0, count) of any shape."""
        return self.generator.integers(count, size=shape)

    def added(self, places: np.ndarray) -> None:
        """Does nothing, because all rows are equally likely."""

    def weights(self, places: np.ndarray) -> np.ndarray | None:
        """Returns None, because all rows have the same weight."""
        return None

    def feedback(self, places: np.ndarray, per_row: Mapping[str, np.ndarray]) -> None:
        """Does nothing."""


def check_places(places: np.ndarray, count: int, shape: tuple[int, int]) -> None:
    """Validates a sampler's draw.

    Raises:
        ValueError: If it does not consist of integers of the given shape in [0, count).
    """
    if np.shape(places) != shape or not np.issubdtype(places.dtype, np.integer):
        raise ValueError(
            f"a sampler must draw integers of shape {list(shape)}; "
            f"got {places.dtype} {np.shape(places)}"
        )
    if places.min() < 0 or places.max() >= count:
        raise ValueError(
            f"a sampler must draw from 0 to {count - 1}; got {places.min()} to {places.max()}"
        )


def check_weights(weights: np.ndarray, shape: tuple[int, int]) -> None:
    """Validates a sampler's weights.

    Raises:
        ValueError: If they are not float32 of the given shape, finite and non-negative.
    """
    if weights.shape != shape or weights.dtype != np.float32:
        raise ValueError(
            f"weights must be float32 of shape {list(shape)}; got {weights.dtype} {weights.shape}"
        )
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise ValueError(
            f"weights must be finite and at least 0; got {weights.min()} to {weights.max()}"
        )
