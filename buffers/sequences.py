"""A replay buffer that keeps episodes whole and samples windows of their steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerly.buffers.rows import RowBuffer, check_finite, count_of, filled
from eagerly.buffers.transition import RowLayout, Transition
from eagerly.buffers.window import BURN_IN, LEARNED, PADDING, SequenceLayout, Window

_NONE = -1


class SequenceReplayBuffer(RowBuffer):
    """Keeps episodes in the order of their steps and samples windows that never cross an end.

    A row is what a step led to: action, reward, discount, the observation that was seen then, and
    how many rows before it the step before stands. An episode begins with a row for its first
    observation. So L steps take L + 1 rows, and an observation is kept once.

    A window has up to `burn_in` steps that only warm a memory, then up to `length - burn_in` that
    are learned from, then padding. Its place is drawn uniformly among all that hold at least one
    step to be learned from, also such as would begin before an episode or end after it: each step
    of the buffer is learned from with the same probability, the first and the last of an episode
    too.

    Args:
        capacity: Most rows kept; the oldest is overwritten.
        observation_size: O.
        action_size: A.
        length: T, steps in a window.
        burn_in: How many of them only warm the memory, at most T - 2.
        seed: Seed of the sampling, an int or a `numpy.random.SeedSequence`.

    Raises:
        ValueError: If a size is out of range.
    """

    def __init__(
        self,
        capacity: int,
        observation_size: int,
        action_size: int,
        *,
        length: int,
        burn_in: int = 0,
        seed: int | np.random.SeedSequence = 0,
    ) -> None:
        self.layout = SequenceLayout(observation_size, action_size, length, burn_in)
        super().__init__(capacity, self.layout.width, seed)
        self._after = np.full(capacity, _NONE, np.int64)  # of each row, the step after it
        self._begins = _Numbers()  # the rows of first observations
        self._last = np.zeros(0, np.int64)  # of each environment, its row before
        flat = RowLayout(observation_size, action_size)
        self._incoming = np.empty((0, flat.width), np.float32)
        self._incoming_parts = flat.unpack(self._incoming)
        self._flat = flat

    def add(self, transitions: Transition, ended: np.ndarray) -> None:
        """Appends a step of each of N environments, overwriting the oldest rows once full.

        Args:
            transitions: Arrays with one leading axis `[N]`, one row per environment, always in the
                same order. Values are stored as float32.
            ended: Which episodes ended with these steps, `[N]` bool; the next step of such an
                environment begins another.

        Raises:
            ValueError: If a part has the wrong shape, N has changed or is too large for the
                capacity, or an observation is not the one that the step before led to.
            FloatingPointError: If a part holds NaN or infinite values, after the cast to float32.
            Nothing is stored then.
        """
        count = count_of(transitions)
        if count != len(self._incoming):
            self._incoming = np.empty((count, self._flat.width), np.float32)
            self._incoming_parts = self._flat.unpack(self._incoming)
        parts = self._incoming_parts
        filled(parts, transitions)
        check_finite(parts, self._incoming)
        if np.shape(ended) != (count,):
            raise ValueError(f"ended must have shape [{count}]; got {np.shape(ended)}")
        last = self._last if len(self._last) else np.full(count, _NONE)
        self._check(parts, last)
        begins = np.flatnonzero(last == _NONE)
        rows = np.zeros((len(begins) + count, self.layout.width), np.float32)
        numbers = self.added + np.arange(len(rows))
        first, steps = rows[: len(begins)], rows[len(begins) :]
        *_, discount, observation, _ = self.layout.split(first)
        discount[...], observation[...] = 1.0, parts.observation[begins]
        last = last.copy()
        last[begins] = numbers[: len(begins)]
        for target, value in zip(
            self.layout.split(steps),
            (
                parts.action,
                parts.reward,
                parts.discount,
                parts.next_observation,
                numbers[len(begins) :] - last,
            ),
            strict=True,
        ):
            target[...] = value
        self._append(rows)
        self._link(numbers, rows)
        self._last = np.where(ended, _NONE, numbers[len(begins) :])

    def _check(self, parts: Transition, last: np.ndarray) -> None:
        count = len(parts.reward)
        if len(last) != count:
            raise ValueError(
                f"there were {len(last)} environments, and are {count}: call begin_episodes"
            )
        if 4 * count > self.capacity:
            raise ValueError(
                f"capacity must be at least 4 for each of {count} environments; got {self.capacity}"
            )
        goes_on = np.flatnonzero(last != _NONE)
        reached = self.layout.split(self._rows[last[goes_on] % self.capacity]).observation
        different = (reached != parts.observation[goes_on]).any(axis=1)
        if different.any():
            raise ValueError(
                f"environment {goes_on[different][0]} was not left where its step begins: say in "
                "`ended` that its episode had ended, or call begin_episodes"
            )

    def _link(self, numbers: np.ndarray, rows: np.ndarray) -> None:
        """Takes note of which row follows which."""
        back = self.layout.split(rows).back.astype(np.int64)
        self._after[numbers % self.capacity] = _NONE
        before = numbers - back
        linked = (back > 0) & (before >= self._oldest)
        self._after[before[linked] % self.capacity] = numbers[linked]
        self._begins.append(numbers[back == 0])
        self._begins.drop_below(self._oldest)

    @property
    def _oldest(self) -> int:
        return self.added - len(self)

    def begin_episodes(self, began: np.ndarray) -> None:
        """Says which environments, `[N]` bool, begin an episode though none was said to end."""
        if len(began) == len(self._last):
            self._last = np.where(began, _NONE, self._last)
        elif np.all(began):
            self._last = np.full(len(began), _NONE)
        else:
            raise ValueError(
                f"began must have shape [{len(self._last)}], or be true for all where the number "
                f"of environments changes; got {np.shape(began)}"
            )

    def sample_rows(self, updates: int, batch_size: int) -> np.ndarray:
        """Gathers packed windows `[updates, batch_size, T + 1, width]`.

        In place of what it has in the buffer the last number of a row says what the step is for:
        `PADDING`, `BURN_IN` or `LEARNED`. What stands in padding beside it means nothing.

        How many updates are asked for at once does not change which windows an update gets. The
        returned array is reused by the next call with the same sizes: copy what you keep. It
        begins at a multiple of 64 bytes, so that TensorFlow can read it where it is.

        Raises:
            ValueError: If the buffer is empty or a size is not positive.
        """
        self._check_sampling(updates, batch_size)
        row, learned = self._drawn(updates, batch_size)
        row, warmed = self._warmed(row)
        numbers = np.empty((*row.shape, self.layout.length + 1), np.int64)
        roles = np.full(numbers.shape, PADDING, np.float32)
        numbers[..., 0], alive = row, np.ones(row.shape, bool)
        for step in range(1, self.layout.length + 1):
            after = self._after[row % self.capacity]
            alive &= (after != _NONE) & (step <= warmed + learned)
            row = np.where(alive, after, row)
            numbers[..., step] = row
            roles[..., step] = np.where(alive, np.where(step > warmed, LEARNED, BURN_IN), PADDING)
        rows = self._taken(numbers % self.capacity)
        rows[..., -1] = roles
        return rows

    def _drawn(self, updates: int, batch_size: int) -> tuple[np.ndarray, np.ndarray]:
        """Draws the row before the first step to be learned from, and how many are at most."""
        most = self.layout.length - self.layout.burn_in
        begins = self._begins.values()
        # A window may begin at any step, or up to most - 1 steps before an episode's first one.
        # The row of a first observation stands for one of these, the rest is drawn beyond the rows.
        before = most - 2
        draw = self._generator.integers(
            len(self) + before * len(begins), size=(updates, batch_size)
        )
        inside = draw < len(self)
        step = self._oldest + np.where(inside, draw, 0)
        row = self._before(step)
        learned = np.where(row == step, most - 1, most)
        if before and len(begins):
            beyond = np.where(inside, 0, draw - len(self))
            row = np.where(inside, row, begins[beyond // before])
            learned = np.where(inside, learned, 1 + beyond % before)
        # What is left of an episode may be a single row, with no step to learn from.
        alone = self._after[row % self.capacity] == _NONE
        newest = np.array(self.added - 1)
        return np.where(alone, self._before(newest), row), np.where(alone, 1, learned)

    def _warmed(self, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Goes back over the steps of burn-in that are there; returns their number, too."""
        warmed = np.zeros(row.shape, np.int64)
        for _ in range(self.layout.burn_in):
            before = self._before(row)
            warmed += before != row
            row = before
        return row, warmed

    def _before(self, row: np.ndarray) -> np.ndarray:
        """Returns the row before each; the row itself where there is none, or none any more."""
        before = row - self._rows[row % self.capacity, -1].astype(np.int64)
        return np.where(before >= self._oldest, before, row)

    def sample(self, updates: int, batch_size: int) -> Window:
        """Samples a `Window` of arrays `[updates, batch_size, ...]`, views of `sample_rows`."""
        return self.layout.unpack(self.sample_rows(updates, batch_size))

    def restore(self, start: int, rows: np.ndarray) -> None:
        """Puts back rows `[n, width]` that `stored(start, start + n)` returned; in order.

        Raises:
            ValueError: If the width is wrong, rows before `start` are missing, or they are no
                steps of episodes.
        """
        super().restore(start, rows)
        numbers = np.arange(start, self.added)[-self.capacity :]
        kept = rows[-self.capacity :]
        back = self.layout.split(kept).back
        if not ((back >= 0) & (back <= numbers) & (back == np.floor(back))).all():
            raise ValueError(f"rows {start} to {self.added} are no steps of episodes")
        self._link(numbers, kept)

    def state(self) -> dict[str, Any]:
        """Returns the last row of each episode in progress, as JSON can hold it."""
        return {"last": self._last.tolist()}

    def restore_state(self, state: dict[str, Any]) -> None:
        """Takes over what `state` returned, after the rows.

        Raises:
            ValueError: If it does not fit the rows.
        """
        last = np.array(state["last"], np.int64).reshape(-1)
        if not ((last == _NONE) | ((last >= self._oldest) & (last < self.added))).all():
            raise ValueError(f"episodes go on from rows {state['last']}, which are not there")
        self._last = last


class _Numbers:
    """Ascending numbers, appended at one end and dropped at the other."""

    def __init__(self) -> None:
        self._array = np.empty(64, np.int64)
        self._start = self._stop = 0

    def values(self) -> np.ndarray:
        return self._array[self._start : self._stop]

    def append(self, numbers: np.ndarray) -> None:
        if self._stop + len(numbers) > len(self._array):
            there = self.values()
            self._array = np.empty(2 * (len(there) + len(numbers)) + 64, np.int64)
            self._array[: len(there)] = there
            self._start, self._stop = 0, len(there)
        self._array[self._stop : self._stop + len(numbers)] = numbers
        self._stop += len(numbers)

    def drop_below(self, least: int) -> None:
        self._start += int(np.searchsorted(self.values(), least))
