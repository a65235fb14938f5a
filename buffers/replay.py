"""A replay buffer in NumPy: one preallocated array, one gather per sample."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eagerly.buffers.transition import RowLayout, Transition

_ALIGNMENT = 64


class ReplayBuffer:
    """Keeps the last `capacity` transitions as packed float32 rows and samples them uniformly.

    The array is reserved at once but memory is touched only as rows are filled: 168 bytes per
    HalfCheetah transition, 168 MB for a million of them.

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
        for name, size in (
            ("capacity", capacity),
            ("observation_size", observation_size),
            ("action_size", action_size),
        ):
            if size < 1:
                raise ValueError(f"{name} must be at least 1; got {size}")
        self.layout = RowLayout(observation_size, action_size)
        self.added = 0
        self._rows = np.empty((capacity, self.layout.width), np.float32)
        self._generator = np.random.Generator(np.random.PCG64(seed))
        self._sampled = np.empty((0, 0, self.layout.width), np.float32)
        self._incoming = np.empty((0, self.layout.width), np.float32)  # reused by every `add`
        self._incoming_parts = self.layout.unpack(self._incoming)

    @property
    def capacity(self) -> int:
        """Most transitions kept."""
        return self._rows.shape[0]

    def __len__(self) -> int:
        """Counts the filled rows."""
        return min(self.added, self.capacity)

    def add(self, transitions: Transition) -> None:
        """Appends N transitions, in order, overwriting the oldest ones once full.

        Args:
            transitions: Arrays with one leading axis `[N]`, one row per environment. Values are
                stored as float32.

        Raises:
            ValueError: If a part has the wrong shape, or N is larger than the capacity.
            FloatingPointError: If a part holds NaN or infinite values, after the cast to float32.
            Nothing is stored then.
        """
        count = np.shape(transitions.reward)[0] if np.ndim(transitions.reward) else -1
        if count != len(self._incoming):
            self._incoming = np.empty((max(count, 0), self.layout.width), np.float32)
            self._incoming_parts = self.layout.unpack(self._incoming)
        rows = self._incoming
        # What overflows here becomes infinite, and is reported below.
        with np.errstate(over="ignore", invalid="ignore"):
            for name, target, value in zip(
                Transition._fields, self._incoming_parts, transitions, strict=True
            ):
                if np.shape(value) != target.shape or count < 1:
                    width = "" if target.ndim == 1 else f", {target.shape[1]}"
                    raise ValueError(
                        f"{name} must have shape [N{width}] with the same N >= 1 for all parts; "
                        f"got {np.shape(value)}"
                    )
                target[...] = value
            # One sum is cheaper than five checks; it may overflow: a bad one only raises suspicion.
            total = rows.sum()
        if not math.isfinite(total):
            _check_finite(self._incoming_parts)
        if count > self.capacity:
            raise ValueError(f"cannot add {count} transitions to a capacity of {self.capacity}")
        start = self.added % self.capacity
        head = min(count, self.capacity - start)
        self._rows[start : start + head] = rows[:head]
        self._rows[: count - head] = rows[head:]
        self.added += count

    def sample_rows(self, updates: int, batch_size: int) -> np.ndarray:
        """Gathers packed rows `[updates, batch_size, width]`, drawn uniformly with replacement.

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
        shape = (updates, batch_size, self.layout.width)
        if self._sampled.shape != shape:
            self._sampled = _aligned(shape)
        indices = self._generator.integers(len(self), size=(updates, batch_size))
        # mode="clip" lets take() write straight into out; the indices are always in range.
        return self._rows.take(indices, axis=0, out=self._sampled, mode="clip")

    def sample(self, updates: int, batch_size: int) -> Transition:
        """Samples a `Transition` of arrays `[updates, batch_size, ...]`, views of `sample_rows`."""
        return self.layout.unpack(self.sample_rows(updates, batch_size))

    def stored(self, start: int, stop: int) -> np.ndarray:
        """Copies the rows `[stop - start, width]` of the start-th up to the stop-th addition.

        Raises:
            ValueError: If some of them were never added or are overwritten already.
        """
        if not self.added - len(self) <= start <= stop <= self.added:
            raise ValueError(
                f"transitions {start} to {stop} are not stored; the buffer holds "
                f"{self.added - len(self)} to {self.added}"
            )
        return self._rows[np.arange(start, stop) % self.capacity]

    def restore(self, start: int, rows: np.ndarray) -> None:
        """Puts back rows `[n, width]` that `stored(start, start + n)` returned; in order.

        Raises:
            ValueError: If the width is wrong or rows before `start` are missing.
        """
        if rows.ndim != 2 or rows.shape[1] != self.layout.width or rows.dtype != np.float32:
            raise ValueError(
                f"rows must be float32 of shape [n, {self.layout.width}]; "
                f"got {rows.dtype} {rows.shape}"
            )
        if self.added and start != self.added:
            raise ValueError(f"rows must continue at {self.added}; got {start}")
        self.added = start + len(rows)
        kept = rows[-self.capacity :]
        self._rows[np.arange(self.added - len(kept), self.added) % self.capacity] = kept

    @property
    def random_state(self) -> dict[str, Any]:
        """The state of the sampling generator, plain numbers that JSON can hold."""
        return dict(self._generator.bit_generator.state)

    @random_state.setter
    def random_state(self, state: dict[str, Any]) -> None:
        self._generator.bit_generator.state = state


def _aligned(shape: tuple[int, ...]) -> np.ndarray:
    """Reserves a float32 array that begins at a multiple of 64 bytes."""
    size = 4 * math.prod(shape)
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(np.float32).reshape(shape)


def _check_finite(transitions: Transition) -> None:
    for name, value in zip(Transition._fields, transitions, strict=True):
        finite = np.isfinite(value)
        if not finite.all():
            place = tuple(int(i) for i in np.argwhere(~finite)[0])
            where = f"environment {place[0]}" + (f", dimension {place[1]}" if place[1:] else "")
            raise FloatingPointError(
                f"{name} must be finite in float32; got {value[place]} in {where}"
            )
