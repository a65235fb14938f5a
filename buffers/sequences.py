"""A replay buffer that stores episodes and samples windows of consecutive steps."""

from __future__ import annotations

import numpy as np

from eagerly.buffers.episode_buffer import NONE, EpisodeBuffer
from eagerly.buffers.samplers import Sampler
from eagerly.buffers.window import BURN_IN, LEARNED, PADDING, SequenceLayout


class SequenceReplayBuffer(EpisodeBuffer):
    """Stores episodes in step order, and samples windows that never cross the end of an episode.

    A window has up to `burn_in` steps that only warm up the recurrent state, then up to
    `length - burn_in` steps to learn from, then padding. Its position is drawn uniformly from all
    positions with at least one step to learn from, including those that extend beyond the start or
    end of an episode.

    All steps are therefore learned from with the same probability, including the first and last
    ones of an episode. The only exceptions are the oldest steps of a partly overwritten episode,
    which are learned from less often.
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
        self._after = np.full(capacity, NONE, np.int64)  # row of the next step, by ring position

    def _link(self, numbers: np.ndarray, rows: np.ndarray) -> None:
        super()._link(numbers, rows)
        back = self.layout.split(rows).back.astype(np.int64)
        self._after[numbers % self.capacity] = NONE
        before = numbers - back
        linked = (back > 0) & (before >= self.oldest)
        self._after[before[linked] % self.capacity] = numbers[linked]

    @property
    def _before_first(self) -> int:
        """Number of positions before an episode, except the one that its first row represents."""
        return self.layout.length - self.layout.burn_in - 2

    def _choices(self) -> int:
        """Returns the number of window positions."""
        # A window may begin at any step. It may also begin before the first step of an episode: the
        # row of the first observation represents one such position, and the other positions are
        # numbered after all rows.
        return len(self) + self._before_first * len(self._begins.values())

    def _gather(self, draw: np.ndarray) -> np.ndarray:
        """Gathers windows `[K, B, T + 1, width]`.

        The last column holds the role of the step: `PADDING`, `BURN_IN` or `LEARNED`. The other
        columns of padding are arbitrary.
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
        """Returns the row before the first learned step, and the maximum number of such steps."""
        most = self.layout.length - self.layout.burn_in
        begins, before = self._begins.values(), self._before_first
        inside = draw < len(self)
        step = self.oldest + np.where(inside, draw, 0)
        row = self._before(step)
        learned = np.where(row == step, most - 1, most)
        if before and len(begins):
            beyond = np.where(inside, 0, draw - len(self))
            row = np.where(inside, row, begins[beyond // before])
            learned = np.where(inside, learned, 1 + beyond % before)
        # A partly overwritten episode may be a single row without a step to learn from. The newest
        # step takes its place.
        alone = self._after[row % self.capacity] == NONE
        newest = np.array(self.added - 1)
        return np.where(alone, self._before(newest), row), np.where(alone, 1, learned)

    def _warmed(self, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Moves back over the available burn-in steps. Returns the row reached and their number."""
        warmed = np.zeros(row.shape, np.int64)
        for _ in range(self.layout.burn_in):
            before = self._before(row)
            warmed += before != row
            row = before
        return row, warmed
