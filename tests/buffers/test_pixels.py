"""The image buffer stores each frame once, yet samples contain the stacks that were added."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from eagerly.buffers import FrameLayout, Frames, PixelReplayBuffer, Transition

# The columns of an observation are 2 plain values, a stack of 3 frames of 5 values each, 1 plain
# value, a stack of 1 frame of 2 values, and 1 plain value.
LAYOUT = FrameLayout(2 + 15 + 1 + 2 + 1, 2, (Frames(2, 3, 5), Frames(18, 1, 2)))


class Player:
    """Plays episodes of random numbers in N environments and records every transition."""

    def __init__(self, count: int, seed: int = 0, mean_length: float = 5.0) -> None:
        self.draws, self.count, self.mean = np.random.default_rng(seed), count, mean_length
        self.now: Any = [self._first() for _ in range(count)]
        self.made: list[tuple[np.ndarray, ...]] = []

    def _frame(self, size: int) -> np.ndarray:
        return self.draws.integers(0, 256, size).astype(np.float32)

    def _first(self) -> np.ndarray:
        frame, plain = self._frame(5), self.draws.normal(size=4).astype(np.float32)
        return np.concatenate(
            [plain[:2], frame, frame, frame, plain[2:3], self._frame(2), plain[3:]]
        )

    def _next(self, row: np.ndarray) -> np.ndarray:
        plain = self.draws.normal(size=4).astype(np.float32)
        stack = [row[7:17], self._frame(5)]
        return np.concatenate([plain[:2], *stack, plain[2:3], self._frame(2), plain[3:]])

    def steps(self, count: int) -> Iterator[tuple[Transition, np.ndarray]]:
        for _ in range(count):
            now = np.stack(self.now)
            then = np.stack([self._next(row) for row in self.now])
            actions = self.draws.uniform(-1, 1, (self.count, 2)).astype(np.float32)
            rewards = self.draws.normal(size=self.count).astype(np.float32)
            discounts = np.full(self.count, 0.9, np.float32)
            ended = self.draws.random(self.count) < 1 / self.mean
            step = Transition(now, actions, rewards, discounts, then)
            self.made += list(zip(*step, strict=True))
            self.now = [self._first() if end else row for row, end in zip(then, ended, strict=True)]
            yield step, ended


def filled(count: int, steps: int, capacity: int) -> tuple[PixelReplayBuffer, Player]:
    buffer, player = PixelReplayBuffer(capacity, LAYOUT), Player(count)
    for step, ended in player.steps(steps):
        buffer.add(step, ended)
    return buffer, player


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("capacity", [1000, 120])
def test_samples_equal_the_added_transitions(count: int, capacity: int) -> None:
    buffer, player = filled(count, 150, capacity)
    sample = buffer.sample(3, 200)
    by_reward = {float(made[2]): made for made in player.made}
    for flat in zip(*(part.reshape(600, *part.shape[2:]) for part in sample), strict=True):
        for part, made in zip(flat, by_reward[float(flat[2])], strict=True):
            np.testing.assert_array_equal(part, made)


def test_all_steps_are_drawn_equally_often() -> None:
    buffer, player = filled(2, 100, 1000)
    drawn = buffer.sample(1, 200_000).reward[0]
    _, counts = np.unique(drawn, return_counts=True)
    assert len(counts) == len(player.made) == 200
    # Each transition is expected 1,000 times, with a standard deviation of 32.
    assert counts.min() > 850
    assert counts.max() < 1150


def test_a_full_buffer_omits_only_its_oldest_steps() -> None:
    buffer, player = filled(2, 400, 200)
    drawn = set(buffer.sample(1, 50_000).reward[0].tolist())
    newest = [float(made[2]) for made in player.made[-100:]]
    assert set(newest) <= drawn


def test_updates_per_call_do_not_change_samples() -> None:
    (whole, _), (parts, _) = filled(2, 100, 1000), filled(2, 100, 1000)
    together = whole.sample_rows(4, 16).copy()
    apart = np.concatenate([parts.sample_rows(n, 16).copy() for n in (1, 3)])
    np.testing.assert_array_equal(together.view(np.uint32), apart.view(np.uint32))


@pytest.mark.parametrize("capacity", [1000, 120])
def test_a_restored_buffer_continues_identically(capacity: int) -> None:
    buffer, player = filled(2, 100, capacity)
    again = PixelReplayBuffer(capacity, LAYOUT, seed=9)
    oldest = buffer.added - len(buffer)
    again.restore_rows(oldest, buffer.rows(oldest, buffer.added))
    again.restore(buffer.state())
    for _ in range(2):
        one, other = (each.sample_rows(2, 50).copy() for each in (buffer, again))
        np.testing.assert_array_equal(one.view(np.uint32), other.view(np.uint32))
        for step, ended in player.steps(10):
            buffer.add(step, ended)
            again.add(step, ended)


def test_a_frame_takes_one_byte_per_value() -> None:
    grey = FrameLayout(3 * 64 * 64, 1, (Frames(0, 3, 64 * 64),))
    assert grey.row_bytes == 64 * 64 + 4 * (1 + 3)
    assert (LAYOUT.plain_size, LAYOUT.byte_count) == (4, 8)


def _step() -> Transition:
    return next(Player(1).steps(1))[0]


def test_stacks_that_do_not_shift_are_rejected() -> None:
    step = _step()
    other = step.next_observation.copy()
    other[0, 3] += 1 if other[0, 3] < 255 else -1
    buffer = PixelReplayBuffer(100, LAYOUT)
    for ended in (False, True):  # a truncation needs its next observation
        with pytest.raises(ValueError, match="stacked frames must shift by one per step"):
            buffer.add(step._replace(next_observation=other), np.array([ended]))
    first = step.observation.copy()
    first[0, 3] += 1 if first[0, 3] < 255 else -1
    with pytest.raises(ValueError, match="must repeat its first frame"):
        buffer.add(step._replace(observation=first), np.array([False]))
    assert not len(buffer)
    # The next observation of a termination is not used.
    ends = step._replace(next_observation=other, discount=np.zeros(1, np.float32))
    buffer.add(ends, np.array([True]))
    assert len(buffer)


def test_a_step_that_does_not_continue_the_previous_one_is_rejected() -> None:
    buffer = PixelReplayBuffer(100, LAYOUT)
    buffer.add(_step(), np.array([False]))
    with pytest.raises(ValueError, match="observation of environment 0 must equal the previous"):
        buffer.add(next(Player(1, 5).steps(1))[0], np.array([False]))


def test_a_changed_number_of_environments_is_rejected() -> None:
    buffer = PixelReplayBuffer(100, LAYOUT)
    buffer.add(_step(), np.array([False]))
    with pytest.raises(ValueError, match="environments changed from 1 to 2: call on_reset"):
        buffer.add(next(Player(2).steps(1))[0], np.zeros(2, bool))


def test_a_capacity_that_is_too_small_is_rejected() -> None:
    with pytest.raises(ValueError, match="capacity must be at least 16 for 1 environments"):
        PixelReplayBuffer(15, LAYOUT).add(_step(), np.array([False]))
    PixelReplayBuffer(16, LAYOUT).add(_step(), np.array([False]))


def test_samples_are_correct_after_the_number_of_environments_decreased() -> None:
    buffer, many = filled(16, 40, 500)
    one = Player(1, seed=1, mean_length=50.0)
    buffer.on_reset(np.ones(1, bool))
    made = {float(step[2]): step for step in many.made}
    for count, (step, ended) in enumerate(one.steps(700)):
        buffer.add(step, ended)
        if count % 20 == 0:
            made |= {float(step[2]): step for step in one.made}
            for flat in zip(*(part[0] for part in buffer.sample(1, 100)), strict=True):
                for part, expected in zip(flat, made[float(flat[2])], strict=True):
                    np.testing.assert_array_equal(part, expected)
    again = PixelReplayBuffer(500, LAYOUT)
    again.restore_rows(buffer.added - len(buffer), buffer.rows(buffer.added - 500, buffer.added))
    again.restore(buffer.state())
    assert again._least == buffer._least
