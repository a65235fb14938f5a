"""Packed rows in a ring: what every replay buffer keeps its data in."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from eagerly.buffers.transition import RowLayout, Transition

_ALIGNMENT = 64


class RowBuffer:
    """Keeps the last `capacity` rows of float32 in one preallocated array, and puts them back.

    The array is reserved at once but memory is touched only as rows are filled. How rows are made
    of transitions, and how they are sampled, is up to the buffers that derive from it.

    Args:
        capacity: Most rows kept; the oldest is overwritten.
        width: Floats in a row.
        seed: Seed of the sampling, an int or a `numpy.random.SeedSequence`.

    Attributes:
        added: How many rows were ever added.

    Raises:
        ValueError: If a size is not positive.
    """

    def __init__(self, capacity: int, width: int, seed: int | np.random.SeedSequence) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1; got {capacity}")
        self.added = 0
        self._rows = np.empty((capacity, width), np.float32)
        self._generator = np.random.Generator(np.random.PCG64(seed))
        self._sampled = np.empty(0, np.float32)

    @property
    def capacity(self) -> int:
        """Most rows kept."""
        return self._rows.shape[0]

    def __len__(self) -> int:
        """Counts the filled rows."""
        return min(self.added, self.capacity)

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Copies the rows `[stop - start, width]` of the start-th up to the stop-th addition.

        Raises:
            ValueError: If some of them were never added or are overwritten already.
        """
        if not self.added - len(self) <= start <= stop <= self.added:
            raise ValueError(
                f"rows {start} to {stop} are not stored; the buffer holds "
                f"{self.added - len(self)} to {self.added}"
            )
        return self._rows[np.arange(start, stop) % self.capacity]

    def restore_rows(self, start: int, rows: np.ndarray) -> None:
        """Puts back rows `[n, width]` that `rows(start, start + n)` returned; in order.

        Raises:
            ValueError: If the width is wrong or rows before `start` are missing.
        """
        width = self._rows.shape[1]
        if rows.ndim != 2 or rows.shape[1] != width or rows.dtype != np.float32:
            raise ValueError(
                f"rows must be float32 of shape [n, {width}]; got {rows.dtype} {rows.shape}"
            )
        if self.added and start != self.added:
            raise ValueError(f"rows must continue at {self.added}; got {start}")
        self.added = start + len(rows)
        kept = rows[-self.capacity :]
        self._rows[np.arange(self.added - len(kept), self.added) % self.capacity] = kept

    def state(self) -> dict[str, Any]:
        """Returns how many rows were added, and the state of the sampling; rows are apart."""
        return {"added": self.added, "sampling": dict(self._generator.bit_generator.state)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state` returned, once its rows were put back by `restore_rows`.

        Raises:
            ValueError: If these are other rows.
        """
        if state["added"] != self.added:
            raise ValueError(f"{state['added']} rows were added; {self.added} were put back")
        self._generator.bit_generator.state = state["sampling"]

    def begin_episodes(self, began: np.ndarray) -> None:
        """Says which environments, `[N]` bool, begin an episode though none was said to end."""

    def _append(self, rows: np.ndarray) -> None:
        """Appends rows `[n, width]`, overwriting the oldest ones; n is at most the capacity."""
        start = self.added % self.capacity
        head = min(len(rows), self.capacity - start)
        self._rows[start : start + head] = rows[:head]
        self._rows[: len(rows) - head] = rows[head:]
        self.added += len(rows)

    def _taken(self, places: np.ndarray) -> np.ndarray:
        """Gathers rows by their place in the ring into an array that the next call uses again."""
        shape = (*places.shape, self._rows.shape[1])
        if self._sampled.shape != shape:
            self._sampled = aligned(shape)
        # mode="clip" lets take() write straight into out; the places are always in range.
        return self._rows.take(places, axis=0, out=self._sampled, mode="clip")

    def _check_sampling(self, updates: int, batch_size: int) -> None:
        if updates < 1 or batch_size < 1:
            raise ValueError(
                f"updates and batch_size must be at least 1; got {updates} and {batch_size}"
            )
        if not self.added:
            raise ValueError("cannot sample from an empty buffer: add transitions first")


class Incoming:
    """Takes transitions in, checked, as rows of a layout; its arrays are used again and again.

    Args:
        layout: The layout.

    Attributes:
        rows: `[N, width]`, those of the last transitions.
        parts: Views of their parts.
    """

    def __init__(self, layout: RowLayout) -> None:
        self._layout = layout
        self.rows = np.empty((0, layout.width), np.float32)
        self.parts = layout.unpack(self.rows)

    def take(self, transitions: Transition) -> int:
        """Takes transitions `[N]`, and returns N.

        Raises:
            ValueError: If a part has the wrong shape.
            FloatingPointError: If a value is NaN or infinite in float32.
        """
        count = count_of(transitions)
        if count != len(self.rows):
            self.rows = np.empty((count, self._layout.width), np.float32)
            self.parts = self._layout.unpack(self.rows)
        filled(self.parts, transitions)
        check_finite(self.parts, self.rows)
        return count


def filled(parts: Transition, transitions: Transition) -> None:
    """Writes transitions `[N]` into the parts of arrays that were made for N, as float32.

    Raises:
        ValueError: If a part has the wrong shape.
    """
    # What overflows here becomes infinite, and is reported afterwards.
    with np.errstate(over="ignore", invalid="ignore"):
        for name, target, value in zip(Transition._fields, parts, transitions, strict=True):
            if np.shape(value) != target.shape or not len(target):
                width = "" if target.ndim == 1 else f", {target.shape[1]}"
                raise ValueError(
                    f"{name} must have shape [N{width}] with the same N >= 1 for all parts; "
                    f"got {np.shape(value)}"
                )
            target[...] = value


def check_finite(parts: Transition, rows: np.ndarray) -> None:
    """Refuses NaN and infinite values in rows, naming the first by the part that it stands in.

    Raises:
        FloatingPointError: If there is one.
    """
    # One sum is cheaper than five checks; it may overflow: a bad one only raises suspicion.
    with np.errstate(over="ignore", invalid="ignore"):
        total = rows.sum()
    if math.isfinite(total):
        return
    for name, value in zip(Transition._fields, parts, strict=True):
        finite = np.isfinite(value)
        if not finite.all():
            place = tuple(int(i) for i in np.argwhere(~finite)[0])
            where = f"environment {place[0]}" + (f", dimension {place[1]}" if place[1:] else "")
            raise FloatingPointError(
                f"{name} must be finite in float32; got {value[place]} in {where}"
            )


def count_of(transitions: Transition) -> int:
    """Returns N, how many transitions there are; 0 where that is not said."""
    return int(np.shape(transitions.reward)[0]) if np.ndim(transitions.reward) else 0


def aligned(shape: tuple[int, ...]) -> np.ndarray:
    """Reserves a float32 array that begins at a multiple of 64 bytes."""
    size = 4 * math.prod(shape)
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(np.float32).reshape(shape)
