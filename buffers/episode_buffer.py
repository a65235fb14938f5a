"""Base class of buffers that store episodes as rows linked to their previous steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerly.buffers.counts import check_began, check_count
from eagerly.buffers.replay import Buffer
from eagerly.buffers.samplers import Sampler
from eagerly.buffers.transition import StepLayout, Transition

NONE = -1


class EpisodeBuffer(Buffer):
    """Stores episodes in step order, as linked rows.

    A row holds the outcome of a step: action, reward, discount, the resulting observation, and the
    distance in rows to the previous step. An episode begins with a row for its first observation.
    So L steps take L + 1 rows, and each observation is stored once.
    """

    layout: StepLayout
    keeps_episodes = True
    _saved = (*Buffer._saved, "_last")

    def __init__(
        self,
        capacity: int,
        layout: StepLayout,
        *,
        seed: int | np.random.SeedSequence = 0,
        sampler: Sampler | None = None,
    ) -> None:
        if sampler is not None and sampler.per_row:
            raise TypeError(
                f"{type(self).__name__} samples from episodes and does not support samplers that "
                f"require values per row; this one requires {', '.join(sampler.per_row)}: use it "
                "without memory and images"
            )
        super().__init__(capacity, layout, seed=seed, sampler=sampler)
        self._last = np.zeros(0, np.int64)  # row of the latest step of each environment, or NONE
        self._begins = AscendingNumbers()  # rows that hold the first observations of episodes

    def _store(self, parts: Transition, ended: Any) -> None:
        count = len(parts.reward)
        if np.shape(ended) != (count,):
            raise ValueError(f"ended must have shape [{count}]; got {np.shape(ended)}")
        if not len(self._last):
            self._check_environments(parts, np.asarray(ended))
        last = self._last if len(self._last) else np.full(count, NONE)
        check_count(len(last), count)
        begins = np.flatnonzero(last == NONE)
        left, reached = self._packed(parts, last == NONE, np.asarray(ended, bool))
        self._check_step(left, last)
        rows = np.zeros((len(begins) + count, self.layout.width), np.float32)
        numbers = self.added + np.arange(len(rows))
        first, steps = rows[: len(begins)], rows[len(begins) :]
        columns = self.layout.split(first)
        columns.discount[...], columns.observation[...] = 1.0, left[begins]
        last = last.copy()
        last[begins] = numbers[: len(begins)]
        columns = self.layout.split(steps)
        columns.action[...], columns.reward[...] = parts.action, parts.reward
        columns.discount[...], columns.observation[...] = parts.discount, reached
        columns.back[...] = numbers[len(begins) :] - last
        self._append(rows)
        self._link(numbers, rows)
        self._last = np.where(ended, NONE, numbers[len(begins) :])

    def _check_environments(self, parts: Transition, ended: np.ndarray) -> None:
        """Raises a `ValueError` if the rows look like the steps of one whole episode."""
        left, reached = parts.observation, parts.next_observation
        continues = np.array_equal(left[1:], reached[:-1]) and (left[1:] != left[:-1]).any()
        # The steps of two environments may look like an episode by chance, but hardly those of
        # more environments.
        if len(left) > 2 and continues and ended[-1] and not ended[:-1].any():
            raise ValueError(
                f"add expects one step of each of N environments; got {len(left)} steps of one "
                "episode: add them one at a time"
            )

    def _packed(
        self, parts: Transition, begins: np.ndarray, ended: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the packed observations before and after the steps, `[N, ...]` each.

        Args:
            parts: The steps.
            begins: `[N]` bool, true if the step is the first of its episode.
            ended: `[N]` bool, true if it is the last one.
        """
        return parts.observation, parts.next_observation

    def _check_step(self, left: np.ndarray, last: np.ndarray) -> None:
        count = len(left)
        least = self.layout.least_rows(count)
        if least > self.capacity:
            raise ValueError(
                f"capacity must be at least {least} for {count} environments; got {self.capacity}"
            )
        continuing = np.flatnonzero(last != NONE)
        reached = self.layout.split(self._rows[last[continuing] % self.capacity]).observation
        different = self._differ(reached, left[continuing])
        if different.any():
            raise ValueError(
                f"the observation of environment {continuing[different][0]} must equal the "
                "previous step's next_observation: mark the last step of an episode in `ended`, or "
                "call on_reset"
            )

    def _differ(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        different: np.ndarray = (one != other).any(axis=1)
        return different

    def _link(self, numbers: np.ndarray, rows: np.ndarray) -> None:
        """Updates the indices for rows that were just appended."""
        self._begins.append(numbers[self.layout.split(rows).back == 0])
        self._begins.drop_below(self.oldest)

    def on_reset(self, began: np.ndarray) -> None:
        """Ends the current episodes of the environments in `began`, `[N]` bool."""
        if not len(self._last):  # nothing added yet
            return
        check_began(began, len(self._last))
        same = len(began) == len(self._last)
        self._last = np.where(began, NONE, self._last) if same else np.full(len(began), NONE)

    def _before(self, row: np.ndarray) -> np.ndarray:
        """Returns each row's predecessor, or the row itself if the predecessor is not stored."""
        back = self.layout.split(self._rows).back[row % self.capacity]
        before = row - back.astype(np.int64)
        return np.where(before >= self.oldest, before, row)

    def restore_rows(self, start: int, rows: np.ndarray) -> None:
        """Restores rows as `Buffer` does, and their links.

        Raises:
            ValueError: As in `Buffer`, or if the rows are not linked like the steps of episodes.
        """
        super().restore_rows(start, rows)
        kept = rows[-self.capacity :]
        self._link(np.arange(self.added - len(kept), self.added), kept)

    def _check_rows(self, start: int, rows: np.ndarray) -> None:
        back, stop = self.layout.split(rows).back, start + len(rows)
        if not ((back >= 0) & (back <= np.arange(start, stop)) & (back == np.floor(back))).all():
            raise ValueError(f"rows {start} to {stop} are not valid episode steps")

    def _check(self, values: dict[str, Any]) -> None:
        last = values["last"]
        stored = (last == NONE) | ((last >= self.oldest) & (last < self.added))
        if last.ndim != 1 or not stored.all():
            raise ValueError(f"the last row of each episode must be in the buffer; got {last}")


class AscendingNumbers:
    """A queue of ascending numbers, appended at one end and dropped at the other."""

    def __init__(self) -> None:
        self._array = np.empty(64, np.int64)
        self._start = self._stop = 0

    def values(self) -> np.ndarray:
        """Returns a view of the numbers."""
        return self._array[self._start : self._stop]

    def append(self, numbers: np.ndarray) -> None:
        """Appends numbers, which must exceed all existing ones."""
        if self._stop + len(numbers) > len(self._array):
            there = self.values()
            self._array = np.empty(2 * (len(there) + len(numbers)) + 64, np.int64)
            self._array[: len(there)] = there
            self._start, self._stop = 0, len(there)
        self._array[self._stop : self._stop + len(numbers)] = numbers
        self._stop += len(numbers)

    def drop_below(self, least: int) -> None:
        """Drops numbers below `least`."""
        self._start += int(np.searchsorted(self.values(), least))
