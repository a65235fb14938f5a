"""Rows of steps that know the step before them: what buffers of whole episodes are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from eagerly.buffers.rows import Incoming, RowBuffer
from eagerly.buffers.steps import StepLayout
from eagerly.buffers.transition import RowLayout, Transition

NONE = -1


class EpisodeBuffer(RowBuffer):
    """Keeps episodes in the order of their steps.

    A row is what a step led to: action, reward, discount, the observation that was seen then, and
    how many rows before it the step before stands. An episode begins with a row for its first
    observation. So L steps take L + 1 rows, and an observation is kept once.

    Args:
        capacity: Most rows kept; the oldest is overwritten.
        layout: Where the parts of a step stand.
        seed: Seed of the sampling, an int or a `numpy.random.SeedSequence`.
    """

    def __init__(
        self, capacity: int, layout: StepLayout, seed: int | np.random.SeedSequence
    ) -> None:
        super().__init__(capacity, layout.width, seed)
        self._steps = layout
        self._last = np.zeros(0, np.int64)  # of each environment, its row before
        self._incoming = Incoming(RowLayout(layout.observation_size, layout.action_size))

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
        count = self._incoming.take(transitions)
        parts = self._incoming.parts
        if np.shape(ended) != (count,):
            raise ValueError(f"ended must have shape [{count}]; got {np.shape(ended)}")
        last = self._last if len(self._last) else np.full(count, NONE)
        if len(last) != count:
            raise ValueError(
                f"there were {len(last)} environments, and are {count}: call begin_episodes"
            )
        begins = np.flatnonzero(last == NONE)
        left, reached = self._packed(parts, last == NONE)
        self._check(left, last)
        rows = np.zeros((len(begins) + count, self._steps.width), np.float32)
        numbers = self.added + np.arange(len(rows))
        first, steps = rows[: len(begins)], rows[len(begins) :]
        columns = self._steps.split(first)
        columns.discount[...], columns.observation[...] = 1.0, left[begins]
        last = last.copy()
        last[begins] = numbers[: len(begins)]
        columns = self._steps.split(steps)
        columns.action[...], columns.reward[...] = parts.action, parts.reward
        columns.discount[...], columns.observation[...] = parts.discount, reached
        columns.back[...] = numbers[len(begins) :] - last
        self._append(rows)
        self._link(numbers, rows)
        self._last = np.where(ended, NONE, numbers[len(begins) :])

    def _packed(self, parts: Transition, begins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns what rows hold of the observations before and after steps, `[N, ...]`.

        Args:
            parts: The steps.
            begins: In which environments they are the first of their episode, `[N]` bool.
        """
        return parts.observation, parts.next_observation

    def _check(self, left: np.ndarray, last: np.ndarray) -> None:
        count = len(left)
        least = self._steps.least_rows(count)
        if least > self.capacity:
            raise ValueError(
                f"capacity must be at least {least} for {count} environments; got {self.capacity}"
            )
        goes_on = np.flatnonzero(last != NONE)
        reached = self._steps.split(self._rows[last[goes_on] % self.capacity]).observation
        different = self._differ(reached, left[goes_on])
        if different.any():
            raise ValueError(
                f"environment {goes_on[different][0]} was not left where its step begins: say in "
                "`ended` that its episode had ended, or call begin_episodes"
            )

    def _differ(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        different: np.ndarray = (one != other).any(axis=1)
        return different

    def _link(self, numbers: np.ndarray, rows: np.ndarray) -> None:
        """Takes note of rows that have been appended."""

    @property
    def _oldest(self) -> int:
        return self.added - len(self)

    def begin_episodes(self, began: np.ndarray) -> None:
        """Says which environments, `[N]` bool, begin an episode though none was said to end."""
        if not len(self._last):  # nothing was added yet
            return
        if len(began) == len(self._last):
            self._last = np.where(began, NONE, self._last)
        elif np.all(began):
            self._last = np.full(len(began), NONE)
        else:
            raise ValueError(
                f"began must have shape [{len(self._last)}], or be true for all where the number "
                f"of environments changes; got {np.shape(began)}"
            )

    def _before(self, row: np.ndarray) -> np.ndarray:
        """Returns the row before each; the row itself where there is none, or none any more."""
        back = self._steps.split(self._rows).back[row % self.capacity]
        before = row - back.astype(np.int64)
        return np.where(before >= self._oldest, before, row)

    def restore_rows(self, start: int, rows: np.ndarray) -> None:
        """Puts back rows `[n, width]` that `rows(start, start + n)` returned; in order.

        Raises:
            ValueError: If the width is wrong, rows before `start` are missing, or they are no
                steps of episodes.
        """
        super().restore_rows(start, rows)
        numbers = np.arange(start, self.added)[-self.capacity :]
        kept = rows[-self.capacity :]
        back = self._steps.split(kept).back
        if not ((back >= 0) & (back <= numbers) & (back == np.floor(back))).all():
            raise ValueError(f"rows {start} to {self.added} are no steps of episodes")
        self._link(numbers, kept)

    def state(self) -> dict[str, Any]:
        """Returns what `RowBuffer.state` does, and the last row of each episode in progress."""
        return super().state() | {"last": self._last.tolist()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state` returned, once its rows were put back.

        Raises:
            ValueError: If it does not fit the rows.
        """
        super().restore(state)
        last = np.array(state["last"], np.int64).reshape(-1)
        if not ((last == NONE) | ((last >= self._oldest) & (last < self.added))).all():
            raise ValueError(f"episodes go on from rows {state['last']}, which are not there")
        self._last = last


class AscendingNumbers:
    """Ascending numbers, appended at one end and dropped at the other."""

    def __init__(self) -> None:
        self._array = np.empty(64, np.int64)
        self._start = self._stop = 0

    def values(self) -> np.ndarray:
        """Returns them."""
        return self._array[self._start : self._stop]

    def append(self, numbers: np.ndarray) -> None:
        """Appends greater ones."""
        if self._stop + len(numbers) > len(self._array):
            there = self.values()
            self._array = np.empty(2 * (len(there) + len(numbers)) + 64, np.int64)
            self._array[: len(there)] = there
            self._start, self._stop = 0, len(there)
        self._array[self._stop : self._stop + len(numbers)] = numbers
        self._stop += len(numbers)

    def drop_below(self, least: int) -> None:
        """Drops those below one."""
        self._start += int(np.searchsorted(self.values(), least))
