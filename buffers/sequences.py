"""A replay buffer that keeps episodes whole and samples windows of their steps."""

from __future__ import annotations

import numpy as np

from eagerly.buffers.episode_buffer import NONE, EpisodeBuffer
from eagerly.buffers.samplers import Sampler
from eagerly.buffers.window import BURN_IN, LEARNED, PADDING, SequenceLayout


class SequenceReplayBuffer(EpisodeBuffer):
    """Keeps episodes in the order of their steps and samples windows that never cross an end.

    A window has up to `burn_in` steps that only warm a memory, then up to `length - burn_in` that
    are learned from, then padding. Its place is drawn uniformly among all that hold at least one
    step to be learned from, also such as would begin before an episode or end after it: each step
    of the buffer is learned from with the same probability, the first and the last of an episode
    too; less often only the oldest steps of one whose beginning was overwritten.
    """

    layout: SequenceLayout

    def __init__(
        self,
        capacity: int,
        layout: SequenceLayout,
        *,
        seed: int | np.random.SeedSequence = 0,
        sampler: Sampler | None = None,
    ) -> None:
        super().__init__(capacity, layout, seed=seed, sampler=sampler)
        self._after = np.full(capacity, NONE, np.int64)  # of each row, the step after it

    def _link(self, numbers: np.ndarray, rows: np.ndarray) -> None:
        super()._link(numbers, rows)
        back = self.layout.split(rows).back.astype(np.int64)
        self._after[numbers % self.capacity] = NONE
        before = numbers - back
        linked = (back > 0) & (before >= self._oldest)
        self._after[before[linked] % self.capacity] = numbers[linked]

    @property
    def _before_first(self) -> int:
        """Places of windows before an episode, without the one that its first row stands for."""
        return self.layout.length - self.layout.burn_in - 2

    def _choices(self) -> int:
        """Counts the places of windows."""
        # A window may begin at any step, or before an episode's first one. The row of a first
        # observation stands for one of these, the rest is drawn beyond the rows.
        return len(self) + self._before_first * len(self._begins.values())

    def _gather(self, draw: np.ndarray) -> np.ndarray:
        """Gathers windows `[K, B, T + 1, width]`.

        In place of what it has in the buffer the last number of a row says what the step is for:
        `PADDING`, `BURN_IN` or `LEARNED`. What stands in padding beside it means nothing.
        """
        row, learned = self._first_learned(draw)
        row, warmed = self._warmed(row)
        numbers = np.empty((*row.shape, self.layout.length + 1), np.int64)
        roles = np.full(numbers.shape, PADDING, np.float32)
        numbers[..., 0], alive = row, np.ones(row.shape, bool)
        for step in range(1, self.layout.length + 1):
            after = self._after[row % self.capacity]
            alive &= (after != NONE) & (step <= warmed + learned)
            row = np.where(alive, after, row)
            numbers[..., step] = row
            roles[..., step] = np.where(alive, np.where(step > warmed, LEARNED, BURN_IN), PADDING)
        rows = self._taken(numbers % self.capacity)
        rows[..., -1] = roles
        return rows

    def _first_learned(self, draw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the row before the first step to be learned from, and how many are at most."""
        most = self.layout.length - self.layout.burn_in
        begins, before = self._begins.values(), self._before_first
        inside = draw < len(self)
        step = self._oldest + np.where(inside, draw, 0)
        row = self._before(step)
        learned = np.where(row == step, most - 1, most)
        if before and len(begins):
            beyond = np.where(inside, 0, draw - len(self))
            row = np.where(inside, row, begins[beyond // before])
            learned = np.where(inside, learned, 1 + beyond % before)
        # What is left of an episode may be a single row, with no step to learn from.
        alone = self._after[row % self.capacity] == NONE
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
