"""Samplers: which rows of a replay buffer are drawn, and how much each of them counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np

from eagerly.state import Saved, Stateful


class Sample(NamedTuple):
    """What a replay buffer hands over for K updates.

    Attributes:
        rows: `[K, B, *layout.sample_shape]`; the next draw of the same sizes reuses the array.
        weights: Importance weights `[K, B]` float32, or None where all samples count alike.
    """

    rows: np.ndarray
    weights: np.ndarray | None


class Sampler(Stateful, Protocol):
    """Decides which rows are sampled.

    In a `ReplayBuffer` it draws places in the ring. A row keeps its place until it is overwritten,
    so a sampler can store a priority for each place. In buffers of episodes it draws the numbers of
    steps or windows, which change as steps are added: they take no sampler with `per_row`.
    """

    @property
    def per_row(self) -> tuple[str, ...]:
        """Names of the values per row that `feedback` needs, such as "td_error", or none."""

    def draw(self, count: int, shape: tuple[int, int]) -> np.ndarray:
        """Draws integers of `shape`, `[K, B]`, in [0, count)."""

    def added(self, places: np.ndarray) -> None:
        """Is told that rows were written at these places `[n]` of the ring, the oldest row first.

        So are rows that are put back when a run is restored; `restore` is called after that.
        """

    def weights(self, places: np.ndarray) -> np.ndarray | None:
        """Returns the importance weights `[K, B]` of a draw, float32, or None if all are equal."""

    def feedback(self, places: np.ndarray, per_row: Mapping[str, np.ndarray]) -> None:
        """Is given the values that the updates of a call returned for the rows they drew.

        Args:
            places: As drawn, `[K, B]`, in the order of the updates; places can repeat.
            per_row: A value for each row, `[K, B]`, under each name of `per_row`.
        """


class UniformSampler(Saved):
    """Draws all rows with the same probability, with replacement.

    Args:
        seed: An int or a `numpy.random.SeedSequence`.

    Attributes:
        generator: The source of its random numbers.
    """

    per_row: tuple[str, ...] = ()
    _saved = ("generator",)

    def __init__(self, seed: int | np.random.SeedSequence = 0) -> None:
        self.generator = np.random.Generator(np.random.PCG64(seed))

    def draw(self, count: int, shape: tuple[int, ...]) -> np.ndarray:
        """Draws integers in [0, count) of any shape."""
        return self.generator.integers(count, size=shape)

    def added(self, places: np.ndarray) -> None:
        """Does nothing: a row is as likely to be drawn as any other."""

    def weights(self, places: np.ndarray) -> np.ndarray | None:
        """Returns None: all rows count alike."""
        return None

    def feedback(self, places: np.ndarray, per_row: Mapping[str, np.ndarray]) -> None:
        """Does nothing."""


def check_places(places: np.ndarray, count: int, shape: tuple[int, int]) -> None:
    """Refuses what a sampler must not draw.

    Raises:
        ValueError: If these are not integers of that shape in [0, count).
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
    """Refuses weights that a sampler must not return.

    Raises:
        ValueError: If these are not float32 of that shape, finite and not negative.
    """
    if weights.shape != shape or weights.dtype != np.float32:
        raise ValueError(
            f"weights must be float32 of shape {list(shape)}; got {weights.dtype} {weights.shape}"
        )
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise ValueError(
            f"weights must be finite and at least 0; got {weights.min()} to {weights.max()}"
        )
