"""Packed rows in a ring, which every replay buffer keeps its data in, and the buffer of rows.

`RowWriter` packs transitions into rows and checks them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from eagerly.buffers.samplers import Sample, Sampler, UniformSampler, check_places, check_weights
from eagerly.buffers.transition import Layout, RowLayout, Transition
from eagerly.state import Saved

_ALIGNMENT = 64


class Buffer(Saved):
    """Keeps the last `capacity` rows of float32 in one preallocated array, and samples them.

    The array is reserved at once but memory is touched only as rows are filled. How rows are made
    of transitions, and which of them are sampled, is up to the buffers that derive from it.

    Args:
        capacity: Most rows kept; the oldest is overwritten.
        layout: Where the parts of a step stand in a row.
        seed: Seed of the uniform sampling, an int or a `numpy.random.SeedSequence`.
        sampler: Draws in place of uniform sampling, with a seed of its own.

    Attributes:
        capacity: As given.
        layout: The layout.
        sampler: What decides which rows are sampled.
        added: How many rows were ever added.
        keeps_episodes: Whether every step of each environment must be added, in order.

    Raises:
        ValueError: If the capacity is not positive.
    """

    layout: Layout
    keeps_episodes = False
    _saved: ClassVar[tuple[str, ...]] = ("sampler",)
    _compared: tuple[str, ...] = ("added",)  # rows are put back before

    def __init__(
        self,
        capacity: int,
        layout: Layout,
        *,
        seed: int | np.random.SeedSequence = 0,
        sampler: Sampler | None = None,
    ) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1; got {capacity}")
        self.capacity, self.layout, self.added = capacity, layout, 0
        self._rows = np.empty((capacity, layout.width), np.float32)
        self._incoming = RowWriter(RowLayout(layout.observation_size, layout.action_size))
        self.sampler = UniformSampler(seed) if sampler is None else sampler
        # Uniform sampling needs no `added` and no checks.
        self._custom_sampler = type(self.sampler) is not UniformSampler
        if self._custom_sampler:  # its places are those of a ring of this capacity
            self._compared = ("added", "capacity")
        if not isinstance(self.sampler.per_row, tuple):
            raise TypeError(f"per_row must be a tuple of names; got {self.sampler.per_row!r}")
        self._places: np.ndarray | None = None  # of the last draw, `[K, B]`
        self._sampled = np.empty(0, np.float32)

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
            ValueError: If a part has the wrong shape, an action is beyond [-1, 1], or N is too
                large for the capacity. If the buffer keeps episodes, also if N has changed, the
                rows are steps of one episode, or an observation is not the one that the step
                before led to.
            FloatingPointError: If a part holds NaN or infinite values, after the cast to float32.
            Nothing is stored then.
        """
        self._incoming.pack(transitions)
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
        self._announce(len(rows))

    def _announce(self, count: int) -> None:
        """Tells the sampler the places of the newest rows."""
        if self._custom_sampler:
            self.sampler.added(np.arange(self.added - count, self.added) % self.capacity)

    def on_reset(self, began: np.ndarray) -> None:
        """Says which environments, `[N]` bool, begin an episode though none was said to end."""

    def draw(self, updates: int, batch_size: int) -> Sample:
        """Gathers samples `[updates, batch_size, *layout.sample_shape]`, with their weights.

        The array of rows is reused by the next call with the same sizes: copy what you keep. It
        begins at a multiple of 64 bytes, so that TensorFlow can read it where it is.

        Raises:
            ValueError: If the buffer is empty, a size is not positive, or a sampler of your own
                returns places or weights that do not fit.
        """
        if updates < 1 or batch_size < 1:
            raise ValueError(
                f"updates and batch_size must be at least 1; got {updates} and {batch_size}"
            )
        if not self.added:
            raise ValueError("cannot sample from an empty buffer: add transitions first")
        shape, count = (updates, batch_size), self._choices()
        self._places = places = self.sampler.draw(count, shape)
        if self._custom_sampler:
            check_places(places, count, shape)
        weights = self.sampler.weights(places)
        if weights is not None:
            check_weights(weights, shape)
        return Sample(self._gather(places), weights)

    def feedback(self, per_row: Mapping[str, np.ndarray]) -> None:
        """Hands values for the rows of the last draw to the sampler.

        Call it before more rows are added: they may stand at the same places.

        Args:
            per_row: A value for each row, `[updates, batch_size]`, under each name that
                `sampler.per_row` has; further names are handed on, too.

        Raises:
            ValueError: If nothing was drawn, a name is missing, or a shape differs.
        """
        if self._places is None:
            raise ValueError("feedback is for the rows of the last draw: call draw first")
        missing = [name for name in self.sampler.per_row if name not in per_row]
        if missing:
            raise ValueError(
                f"the sampler needs {', '.join(missing)} of each row; got {sorted(per_row)}"
            )
        for name, values in per_row.items():
            if np.shape(values) != self._places.shape:
                raise ValueError(
                    f"{name} must have shape {list(self._places.shape)}, that of the last draw; "
                    f"got {np.shape(values)}"
                )
        self.sampler.feedback(self._places, per_row)

    def sample_rows(self, updates: int, batch_size: int) -> np.ndarray:
        """Gathers samples as `draw` does, without their weights.

        Of uniform samples, how many updates are asked for at once does not change which rows an
        update gets.
        """
        return self.draw(updates, batch_size).rows

    def sample(self, updates: int, batch_size: int) -> Any:
        """Samples transitions, or windows of steps, as arrays `[updates, batch_size, ...]`.

        `sample_rows`, split by `layout.unpack`: a `Transition`, or a `Window`.
        """
        return self.layout.unpack(self.sample_rows(updates, batch_size))

    def _choices(self) -> int:
        """Counts what there is to draw from; here every row is a sample."""
        return len(self)

    def _gather(self, draw: np.ndarray) -> np.ndarray:
        """Gathers samples `[K, B, *layout.sample_shape]` of numbers less than `_choices()`."""
        return self._taken(draw)

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
        self._places = None
        kept = rows[-self.capacity :]
        self._rows[np.arange(self.added - len(kept), self.added) % self.capacity] = kept
        self._announce(len(kept))


class RowWriter:
    """Takes transitions in, checked, as rows of a layout; its arrays are used again and again.

    Attributes:
        rows: `[N, width]`, those of the last transitions.
        parts: Views of their parts.
    """

    def __init__(self, layout: RowLayout) -> None:
        self._layout = layout
        self.rows = np.empty((0, layout.width), np.float32)
        self.parts = layout.unpack(self.rows)

    def pack(self, transitions: Transition) -> None:
        """Takes transitions `[N]`.

        Raises:
            ValueError: If a part has the wrong shape, or an action is beyond [-1, 1].
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
        if np.abs(self.parts.action).max() > 1.0:
            self._check_actions()

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

    def _check_actions(self) -> None:
        """Raises a `ValueError` that names the first action beyond [-1, 1]."""
        actions = self.parts.action
        environment, dimension = (int(i) for i in np.argwhere(np.abs(actions) > 1.0)[0])
        raise ValueError(
            f"actions must be in [-1, 1]; got {actions[environment, dimension]} in environment "
            f"{environment}, dimension {dimension}: convert actions in the environment's units "
            "with agent.actions.from_environment"
        )


class ReplayBuffer(Buffer):
    """Keeps the last `capacity` transitions as packed float32 rows and samples them.

    A HalfCheetah transition takes 168 bytes, a million of them 168 MB.

    Args:
        capacity: Most transitions kept; the oldest is overwritten.
        observation_size: O.
        action_size: A.
        seed: Seed of the uniform sampling, an int or a `numpy.random.SeedSequence`.
        sampler: Draws in place of uniform sampling, with a seed of its own.

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
        sampler: Sampler | None = None,
    ) -> None:
        layout = RowLayout(observation_size, action_size)
        super().__init__(capacity, layout, seed=seed, sampler=sampler)


def aligned(shape: tuple[int, ...]) -> np.ndarray:
    """Reserves a float32 array that begins at a multiple of 64 bytes."""
    size = 4 * math.prod(shape)
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(np.float32).reshape(shape)
