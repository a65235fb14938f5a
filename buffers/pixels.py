"""A replay buffer for images, which stores each frame once, as bytes."""

from __future__ import annotations

import numpy as np

from eagerly.buffers.episode_buffer import NONE, EpisodeBuffer
from eagerly.buffers.frames import FrameLayout
from eagerly.buffers.samplers import Sampler
from eagerly.buffers.transition import Transition


class PixelReplayBuffer(EpisodeBuffer):
    """Stores the newest frame of each step as bytes, and samples transitions uniformly.

    Consecutive stacks of K frames share all frames but one, so each transition stores only its
    newest frame. A 64×64 grayscale frame takes 4 KiB, compared with 96 KiB for two stacks of three
    frames in float32.
    """

    layout: FrameLayout

    def __init__(
        self,
        capacity: int,
        layout: FrameLayout,
        *,
        seed: int | np.random.SeedSequence = 0,
        sampler: Sampler | None = None,
    ) -> None:
        super().__init__(capacity, layout, seed=seed, sampler=sampler)
        # The row that is furthest from its previous step (the latest of several), and the distance.
        self._longest_link = (NONE, 0)

    def _packed(
        self, parts: Transition, begins: np.ndarray, ended: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        used = ~ended | (parts.discount != 0.0)  # the next observation of a termination is not
        for image in self.layout.images:
            now, then = (
                part[:, image.start : image.stop]
                for part in (parts.observation, parts.next_observation)
            )
            older = now[begins]
            if (older[:, image.size :] != older[:, : -image.size]).any():
                raise ValueError(
                    "the first observation of an episode must repeat its first frame, as in "
                    "gymnasium.wrappers.FrameStackObservation with padding_type='reset'; the first "
                    f"axis of (K, H, W) is K frames, here {image.count}: put channels last"
                )
            if (then[used, : -image.size] != now[used, image.size :]).any():
                raise ValueError(
                    "stacked frames must shift by one per step, as in "
                    "gymnasium.wrappers.FrameStackObservation: pass other stacks as channels, "
                    "(H, W, C) or (1, H, W, C)"
                )
        return self.layout.pack(parts.observation), self.layout.pack(parts.next_observation)

    def _differ(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        # Compare bit patterns, because packed bytes may form a NaN.
        words = (np.ascontiguousarray(part).view(np.uint32) for part in (one, other))
        left, right = words
        different: np.ndarray = (left != right).any(axis=1)
        return different

    def _link(self, numbers: np.ndarray, rows: np.ndarray) -> None:
        super()._link(numbers, rows)
        self._update_longest_link(numbers, self.layout.split(rows).back)
        if self._longest_link[0] < self.oldest:
            # The row with the longest link was overwritten, for example because there used to be
            # more environments.
            numbers = np.arange(self.oldest, self.added)
            self._longest_link = (NONE, 0)
            back = self.layout.split(self._rows).back[numbers % self.capacity]
            self._update_longest_link(numbers, back)

    def _update_longest_link(self, numbers: np.ndarray, back: np.ndarray) -> None:
        furthest = len(back) - 1 - int(np.argmax(back[::-1]))
        if back[furthest] >= self._longest_link[1]:
            self._longest_link = (int(numbers[furthest]), int(back[furthest]))

    @property
    def _least(self) -> int:
        """The first row whose sample needs no overwritten rows."""
        # No link back spans more rows than this, and a sample follows S links.
        longest = max(2 * len(self._last), self._longest_link[1])
        return self.oldest and self.oldest + longest * (self.layout.steps + 1)

    def _sampling_range(self) -> tuple[int, np.ndarray]:
        """Returns the first row to sample, and the offsets of later rows of first observations."""
        least = min(self._least, self.added - 1)
        begins = self._begins.values()
        return least, begins[np.searchsorted(begins, least) :] - least

    def _choices(self) -> int:
        """Returns the number of steps to sample from, without the oldest ones of a full buffer."""
        least, begins = self._sampling_range()
        return max(self.added - least - len(begins), 1)

    def _gather(self, draw: np.ndarray) -> np.ndarray:
        """Gathers the rows of both observations of the drawn steps, `[K, B, S + 1, width]`."""
        least, begins = self._sampling_range()
        # The row of step number `draw`, not counting rows of first observations.
        row = least + draw + np.searchsorted(begins - np.arange(len(begins)), draw, side="right")
        numbers = np.empty((*row.shape, self.layout.steps + 1), np.int64)
        for place in range(self.layout.steps, -1, -1):
            numbers[..., place] = row
            row = self._before(row)
        return self._taken(numbers % self.capacity)
