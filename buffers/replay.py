"""Packed rows in a ring, which every replay buffer keeps its data in, and the buffer of rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from eagerly.buffers.transition import Layout, RowLayout, Transition

_ALIGNMENT = 64


class Buffer:
    """Keeps the last `capacity` rows of float32 in one preallocated array, and samples them.

    The array is reserved at once but memory is touched only as rows are filled. How rows are made
    of transitions, and which of them are sampled, is up to the buffers that derive from it.

    Args:
        capacity: Most rows kept; the oldest is overwritten.
        layout: Where the parts of a step stand in a row.
        seed: Seed of the sampling, an int or a `numpy.random.SeedSequence`.

    Attributes:
        layout: The layout.
        added: How many rows were ever added.

    Raises:
        ValueError: If the capacity is not positive.
    """

    layout: Layout

    def __init__(
        self, capacity: int, layout: Layout, *, seed: int | np.random.SeedSequence = 0
    ) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1; got {capacity}")
        self.layout = layout
        self.added = 0
        self._rows = np.empty((capacity, layout.width), np.float32)
        self._incoming = _Incoming(RowLayout(layout.observation_size, layout.action_size))
        self._generator = np.random.Generator(np.random.PCG64(seed))
        self._sampled = np.empty(0, np.float32)

    @property
    def capacity(self) -> int:
        """Most rows kept."""
        return self._rows.shape[0]

    def __len__(self) -> int:
        """Counts the filled rows."""
        return min(self.added, self.capacity)

    @property
    def _oldest(self) -> int:
        return self.added - len(self)

    def add(self, transitions: Transition, ended: np.ndarray | None = None) -> None:
        """Appends a step of each of N environments, in order; overwrites the oldest rows once full.

        Args:
            transitions: Arrays with one leading axis `[N]`, one row per environment, always in the
                same order. Values are stored as float32.
            ended: Which episodes ended with these steps, `[N]` bool; the next step of such an
                environment begins another. Only buffers that keep episodes need it.

        Raises:
            ValueError: If a part has the wrong shape, or N is too large for the capacity; where
                episodes are kept, also if N has changed, or an observation is not the one that the
                step before led to.
            FloatingPointError: If a part holds NaN or infinite values, after the cast to float32.
            Nothing is stored then.
        """
        self._incoming.take(transitions)
        self._store(self._incoming.parts, ended)

    def _store(self, parts: Transition, ended: Any) -> None:
        """Appends the rows of checked transitions `[N]`."""
        self._append(self._incoming.rows)

    def _append(self, rows: np.ndarray) -> None:
        """Appends rows `[n, width]`, overwriting the oldest ones."""
        if len(rows) > self.capacity:
            raise ValueError(f"cannot add {len(rows)} transitions to a capacity of {self.capacity}")
        start = self.added % self.capacity
        head = min(len(rows), self.capacity - start)
        self._rows[start : start + head] = rows[:head]
        self._rows[: len(rows) - head] = rows[head:]
        self.added += len(rows)

    def begin_episodes(self, began: np.ndarray) -> None:
        """Says which environments, `[N]` bool, begin an episode though none was said to end."""

    def sample_rows(self, updates: int, batch_size: int) -> np.ndarray:
        """Gathers samples `[updates, batch_size, *layout.sample_shape]`, drawn with replacement.

        How many updates are asked for at once does not change which rows an update gets. The
        returned array is reused by the next call with the same sizes: copy what you keep. It
        begins at a multiple of 64 bytes, so that TensorFlow can read it where it is.

        Raises:
            ValueError: If the buffer is empty or a size is not positive.
        """
        if updates < 1 or batch_size < 1:
            raise ValueError(
                f"updates and batch_size must be at least 1; got {updates} and {batch_size}"
            )
        if not self.added:
            raise ValueError("cannot sample from an empty buffer: add transitions first")
        return self._draw((updates, batch_size))

    def sample(self, updates: int, batch_size: int) -> Any:
        """Samples transitions, or windows of steps, as arrays `[updates, batch_size, ...]`.

        `sample_rows`, split by `layout.unpack`: a `Transition`, or a `Window`.
        """
        return self.layout.unpack(self.sample_rows(updates, batch_size))

    def _draw(self, shape: tuple[int, int]) -> np.ndarray:
        """Draws samples `[*shape, *layout.sample_shape]`; here every row is one, uniformly."""
        return self._taken(self._generator.integers(len(self), size=shape))

    def _taken(self, places: np.ndarray) -> np.ndarray:
        """Gathers rows by their place in the ring into an array that the next call uses again."""
        shape = (*places.shape, self._rows.shape[1])
        if self._sampled.shape != shape:
            self._sampled = aligned(shape)
        # mode="clip" lets take() write straight into out; the places are always in range.
        return self._rows.take(places, axis=0, out=self._sampled, mode="clip")

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Copies the rows `[stop - start, width]` of the start-th up to the stop-th addition.

        Raises:
            ValueError: If some of them were never added or are overwritten already.
        """
        if not self._oldest <= start <= stop <= self.added:
            raise ValueError(
                f"rows {start} to {stop} are not stored; the buffer holds "
                f"{self._oldest} to {self.added}"
            )
        return self._rows[np.arange(start, stop) % self.capacity]

    def restore_rows(self, start: int, rows: np.ndarray) -> None:
        """Puts back rows `[n, width]` that `rows(start, start + n)` returned; in order.

        Raises:
            ValueError: If the width is wrong, rows before `start` are missing, or they are no rows
                of such a buffer.
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
        """Returns what the next sample depends on, and how many rows were added; rows are apart."""
        return {"added": self.added, "sampling": dict(self._generator.bit_generator.state)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state` returned, once its rows were put back by `restore_rows`.

        Raises:
            ValueError: If these are other rows.
        """
        if state["added"] != self.added:
            raise ValueError(f"{state['added']} rows were added; {self.added} were put back")
        self._generator.bit_generator.state = state["sampling"]


class ReplayBuffer(Buffer):
    """Keeps the last `capacity` transitions as packed float32 rows and samples them uniformly.

    A HalfCheetah transition takes 168 bytes, a million of them 168 MB.

    Args:
        capacity: Most transitions kept; the oldest is overwritten.
        observation_size: O.
        action_size: A.
        seed: Seed of the sampling, an int or a `numpy.random.SeedSequence`.

    Raises:
        ValueError: If a size is not positive.
    """

    def __init__(
        self,
        capacity: int,
        observation_size: int,
        action_size: int,
        *,
        seed: int | np.random.SeedSequence = 0,
    ) -> None:
        super().__init__(capacity, RowLayout(observation_size, action_size), seed=seed)


class _Incoming:
    """Takes transitions in, checked, as rows of a layout; its arrays are used again and again.

    Attributes:
        rows: `[N, width]`, those of the last transitions.
        parts: Views of their parts.
    """

    def __init__(self, layout: RowLayout) -> None:
        self._layout = layout
        self.rows = np.empty((0, layout.width), np.float32)
        self.parts = layout.unpack(self.rows)

    def take(self, transitions: Transition) -> None:
        """Takes transitions `[N]`.

        Raises:
            ValueError: If a part has the wrong shape.
            FloatingPointError: If a value is NaN or infinite in float32.
        """
        count = len(transitions.reward) if np.ndim(transitions.reward) else 0
        if count != len(self.rows):
            self.rows = np.empty((count, self._layout.width), np.float32)
            self.parts = self._layout.unpack(self.rows)
        # What overflows in the cast becomes infinite and is found. One sum is cheaper than five
        # checks; it may overflow, too: it only raises suspicion.
        with np.errstate(over="ignore", invalid="ignore"):
            for name, target, value in zip(
                Transition._fields, self.parts, transitions, strict=True
            ):
                if np.shape(value) != target.shape or not count:
                    width = "" if target.ndim == 1 else f", {target.shape[1]}"
                    raise ValueError(
                        f"{name} must have shape [N{width}] with the same N >= 1 for all parts; "
                        f"got {np.shape(value)}"
                    )
                target[...] = value
            total = self.rows.sum()
        if not math.isfinite(total):
            self._check_finite()

    def _check_finite(self) -> None:
        """Refuses NaN and infinite values, naming the part that the first stands in."""
        for name, value in zip(Transition._fields, self.parts, strict=True):
            finite = np.isfinite(value)
            if not finite.all():
                place = tuple(int(i) for i in np.argwhere(~finite)[0])
                where = f"environment {place[0]}" + (f", dimension {place[1]}" if place[1:] else "")
                raise FloatingPointError(
                    f"{name} must be finite in float32; got {value[place]} in {where}"
                )


def aligned(shape: tuple[int, ...]) -> np.ndarray:
    """Reserves a float32 array that begins at a multiple of 64 bytes."""
    size = 4 * math.prod(shape)
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(np.float32).reshape(shape)
