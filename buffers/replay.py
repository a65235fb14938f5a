"""The ring of packed rows that underlies all replay buffers, and the transition buffer.

`RowWriter` validates transitions and packs them into rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from eagerly.buffers.samplers import Sample, Sampler, UniformSampler, check_places, check_weights
from eagerly.buffers.transition import Layout, RowLayout, Transition
from eagerly.errors import whole_number
from eagerly.state import Lock, Saved

_ALIGNMENT = 64


class Buffer(Saved):
    """Stores the last `capacity` float32 rows in one preallocated array, and samples them.

    The array is allocated at once, but uses physical memory only as rows are filled. Subclasses
    define how transitions are packed into rows, and which rows form a sample.

    Args:
        capacity: Maximum number of rows; the oldest are overwritten.
        layout: Layout of a row.
        seed: Seed of the uniform sampler, an int or a `numpy.random.SeedSequence`.
        sampler: Replaces uniform sampling. It has its own seed.

    Attributes:
        capacity: Maximum number of rows.
        layout: Layout of a row.
        sampler: Draws the samples.
        added: Total number of rows ever added.
        keeps_episodes: Whether every step of each environment must be added, in order.
        permanent: Number of first rows that are never overwritten.

    Raises:
        ValueError: If the capacity is not an integer of at least 1.
        TypeError: If `per_row` of the sampler is not a tuple.
    """

    layout: Layout
    keeps_episodes = False
    permanent = 0
    _saved: ClassVar[tuple[str, ...]] = ("sampler",)
    _compared: tuple[str, ...] = ("added",)  # restored together with the rows

    def __init__(
        self,
        capacity: int,
        layout: Layout,
        *,
        seed: int | np.random.SeedSequence = 0,
        sampler: Sampler | None = None,
    ) -> None:
        self.capacity = capacity = whole_number("capacity", capacity, 1)
        self.layout, self.added = layout, 0
        self._rows = np.empty((capacity, layout.width), np.float32)
        self._incoming = RowWriter(RowLayout(layout.observation_size, layout.action_size))
        self.sampler = UniformSampler(seed) if sampler is None else sampler
        # The uniform sampler needs no calls of `added`, and its draws need no checks.
        self._custom_sampler = type(self.sampler) is not UniformSampler
        if self._custom_sampler:  # its state refers to ring positions, which depend on capacity
            self._compared = ("added", "capacity")
        if not isinstance(self.sampler.per_row, tuple):
            raise TypeError(f"per_row must be a tuple of names; got {self.sampler.per_row!r}")
        self._places: np.ndarray | None = None  # indices of the last draw, `[K, B]`
        self._drawn_from = 0  # `added` at the last draw
        self._lock = Lock()
        self._sampled = np.empty(0, np.float32)

    def __len__(self) -> int:
        """Returns the number of filled rows."""
        return min(self.added, self.capacity)

    @property
    def oldest(self) -> int:
        """Number of the oldest row that is stored and can be overwritten."""
        return self.added - len(self)

    def add(self, transitions: Transition, ended: np.ndarray | None = None) -> None:
        """Appends one step of each of N environments, overwriting the oldest rows once full.

        Nothing is stored if an error is raised.

        Args:
            transitions: Arrays with one leading axis `[N]`, one row per environment, always in the
                same order. Values are stored as float32.
            ended: `[N]` bool, true if the step ended its episode. The environment's next step then
                begins a new one. Required only by buffers that keep episodes.

        Raises:
            ValueError: If a part has the wrong shape, an action is outside [-1, 1], or N is too
                large for the capacity. Buffers that keep episodes also raise it if N has changed,
                the rows are consecutive steps of one environment, or an observation differs from
                the previous step's next observation.
            FloatingPointError: If a value is NaN or infinite as float32.
        """
        with self._lock:
            self._incoming.pack(transitions)
            self._store(self._incoming.parts, ended)

    def _store(self, parts: Transition, ended: Any) -> None:
        """Appends the rows of validated transitions `[N]`."""
        self._append(self._incoming.rows)

    def _append(self, rows: np.ndarray) -> None:
        """Appends rows `[n, width]`, overwriting the oldest ones."""
        if len(rows) > self.capacity:
            raise ValueError(
                f"cannot add {len(rows)} transitions to a buffer of capacity {self.capacity}"
            )
        start = self.added % self.capacity
        head = min(len(rows), self.capacity - start)
        self._rows[start : start + head] = rows[:head]
        self._rows[: len(rows) - head] = rows[head:]
        self.added += len(rows)
        self._announce(len(rows))

    def _announce(self, count: int) -> None:
        """Notifies the sampler of the newest rows."""
        if self._custom_sampler:
            self.sampler.added(np.arange(self.added - count, self.added) % self.capacity)

    def on_reset(self, began: np.ndarray) -> None:
        """Called after the environments in `began`, `[N]` bool, were reset during an episode."""

    def draw(self, updates: int, batch_size: int) -> Sample:
        """Draws samples `[updates, batch_size, *layout.sample_shape]`, with their weights.

        The next call with the same sizes reuses the array of rows: copy it to keep it. It is
        aligned to 64 bytes, so that TensorFlow can read it without copying.

        Raises:
            ValueError: If the buffer is empty, a size is not positive, or a custom sampler returns
                invalid indices or weights.
        """
        if updates < 1 or batch_size < 1:
            raise ValueError(
                f"updates and batch_size must be at least 1; got {updates} and {batch_size}"
            )
        if not self.added:
            raise ValueError("cannot sample from an empty buffer: add transitions first")
        with self._lock:
            shape, count = (updates, batch_size), self._choices()
            self._places = places = self.sampler.draw(count, shape)
            self._drawn_from = self.added
            if self._custom_sampler:
                check_places(places, count, shape)
            weights = self.sampler.weights(places)
            if weights is not None:
                check_weights(weights, shape)
            return Sample(self._gather(places), weights)

    def feedback(self, per_row: Mapping[str, np.ndarray]) -> None:
        """Passes values for the rows of the last draw to the sampler.

        Rows that were added since the draw keep the priorities of new rows.

        Args:
            per_row: Values `[updates, batch_size]` for each name in `sampler.per_row`. Values of
                other names are passed on, too.

        Raises:
            ValueError: If nothing was drawn, a name is missing, or a shape differs.
        """
        if self._places is None:
            raise ValueError("feedback applies to the last draw: call draw first")
        missing = [name for name in self.sampler.per_row if name not in per_row]
        if missing:
            raise ValueError(
                f"per_row must contain {', '.join(missing)} for the sampler; got {sorted(per_row)}"
            )
        for name, values in per_row.items():
            if np.shape(values) != self._places.shape:
                raise ValueError(
                    f"{name} must have the shape {list(self._places.shape)} of the last draw; got "
                    f"{np.shape(values)}"
                )
        with self._lock:
            self.sampler.feedback(self._places, per_row)
            if self.added > self._drawn_from:  # rows of another thread are still new
                self._announce(min(self.added - self._drawn_from, self.capacity))

    def sample_rows(self, updates: int, batch_size: int) -> np.ndarray:
        """Draws samples as `draw` does, without their weights.

        With uniform sampling, an update's rows do not depend on the number of updates per call.
        """
        return self.draw(updates, batch_size).rows

    def sample(self, updates: int, batch_size: int) -> Any:
        """Samples transitions or windows as arrays `[updates, batch_size, ...]`.

        Returns:
            A `Transition` or a `Window`: the result of `sample_rows`, split by `layout.unpack`.
        """
        return self.layout.unpack(self.sample_rows(updates, batch_size))

    def _choices(self) -> int:
        """Returns the number of distinct samples. In this class, every row is a sample."""
        return len(self)

    def _gather(self, draw: np.ndarray) -> np.ndarray:
        """Gathers samples `[K, B, *layout.sample_shape]` for draws in [0, `_choices()`)."""
        return self._taken(draw)

    def _taken(self, places: np.ndarray) -> np.ndarray:
        """Gathers rows by ring position, into an array that the next call reuses."""
        shape = (*places.shape, self._rows.shape[1])
        if self._sampled.shape != shape:
            self._sampled = aligned(shape)
        # mode="clip" lets take() write straight into out; positions are always in range.
        return self._rows.take(places, axis=0, out=self._sampled, mode="clip")

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Returns copies of rows `[stop - start, width]`, numbered in the order of addition.

        Raises:
            ValueError: If some rows were never added or have been overwritten.
        """
        if not self.oldest <= start <= stop <= self.added:
            raise ValueError(
                f"rows {start} to {stop} are not stored; the buffer holds "
                f"{self.oldest} to {self.added}"
            )
        return self._rows[np.arange(start, stop) % self.capacity]

    def restore_rows(self, start: int, rows: np.ndarray) -> None:
        """Restores rows `[n, width]` that `rows(start, start + n)` returned, in order.

        Raises:
            ValueError: If the dtype or shape is wrong, the rows do not directly follow the previous
                ones, or they are invalid for this kind of buffer.
        """
        width = self._rows.shape[1]
        if rows.ndim != 2 or rows.shape[1] != width or rows.dtype != np.float32:
            raise ValueError(
                f"rows must be float32 of shape [n, {width}]; got {rows.dtype} {rows.shape}"
            )
        if self.added and start != self.added:
            raise ValueError(f"rows must continue at {self.added}; got {start}")
        self._check_rows(start, rows)
        self.added = start + len(rows)
        self._places = None
        kept = rows[-self.capacity :]
        self._rows[np.arange(self.added - len(kept), self.added) % self.capacity] = kept
        self._announce(len(kept))

    def _check_rows(self, start: int, rows: np.ndarray) -> None:
        """Raises a `ValueError` if rows to be restored are invalid for this kind of buffer."""


class RowWriter:
    """Validates transitions and packs them into rows, in arrays that are reused.

    Attributes:
        rows: `[N, width]`, the rows of the last transitions.
        parts: Views of `rows` as the parts of transitions.
    """

    def __init__(self, layout: RowLayout) -> None:
        self._layout = layout
        self.rows = np.empty((0, layout.width), np.float32)
        self.parts = layout.unpack(self.rows)

    def __reduce__(self) -> tuple[type[RowWriter], tuple[RowLayout]]:
        # Copies of `parts` would not be views of the copy of `rows`.
        return RowWriter, (self._layout,)

    def pack(self, transitions: Transition) -> None:
        """Validates transitions `[N]` and writes them to `rows`.

        Raises:
            ValueError: If a part has the wrong shape, or an action is outside [-1, 1].
            FloatingPointError: If a value is NaN or infinite as float32.
        """
        count = len(transitions.reward) if np.ndim(transitions.reward) else 0
        if not count:
            raise ValueError(
                f"reward must have shape [N] with N >= 1; got {np.shape(transitions.reward)}"
            )
        if count != len(self.rows):
            self.rows = np.empty((count, self._layout.width), np.float32)
            self.parts = self._layout.unpack(self.rows)
        # Values that overflow in the cast become infinite. One sum over all values is cheaper than
        # five checks. Because the sum itself may overflow, it only decides whether to check.
        with np.errstate(over="ignore", invalid="ignore"):
            for name, target, value in zip(
                Transition._fields, self.parts, transitions, strict=True
            ):
                if np.shape(value) != target.shape:
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
        """Raises a `FloatingPointError` that names the first NaN or infinite value."""
        for name, value in zip(Transition._fields, self.parts, strict=True):
            finite = np.isfinite(value)
            if not finite.all():
                place = tuple(int(i) for i in np.argwhere(~finite)[0])
                where = f"environment {place[0]}" + (f", dimension {place[1]}" if place[1:] else "")
                raise FloatingPointError(
                    f"{name} must be finite in float32; got {value[place]} in {where}"
                )

    def _check_actions(self) -> None:
        """Raises a `ValueError` that names the first action outside [-1, 1]."""
        actions = self.parts.action
        environment, dimension = (int(i) for i in np.argwhere(np.abs(actions) > 1.0)[0])
        raise ValueError(
            f"actions must be in [-1, 1]; got {actions[environment, dimension]} in environment "
            f"{environment}, dimension {dimension}: convert actions from the environment's units "
            "with agent.actions.from_environment"
        )


class ReplayBuffer(Buffer):
    """Stores the last `capacity` transitions as packed float32 rows, and samples them.

    A HalfCheetah transition takes 168 bytes, so a million take 168 MB.

    Args:
        capacity: Maximum number of transitions; the oldest are overwritten.
        observation_size: O, the length of an observation.
        action_size: A, the length of an action.
        seed: Seed of the uniform sampler, an int or a `numpy.random.SeedSequence`.
        sampler: Replaces uniform sampling. It has its own seed.

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
    """Allocates an uninitialized float32 array, aligned to 64 bytes."""
    size = 4 * math.prod(shape)
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(np.float32).reshape(shape)
