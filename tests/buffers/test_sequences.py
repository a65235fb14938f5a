"""Windows of episodes. In these tests, an observation is 100 × episode + step."""

from __future__ import annotations

import numpy as np
import pytest

from eagerly.buffers import (
    BURN_IN,
    LEARNED,
    PADDING,
    SequenceLayout,
    SequenceReplayBuffer,
    Transition,
    Window,
)
from eagerly.state import packed, unpacked


class Feeder:
    """Feeds a buffer from N environments with different episode lengths.

    In episode e of environment n, observation t is [100 e + t, n]. The step that leads to this
    observation has reward 100 e + t and action (100 e + t) / 2**14. The discount is 0.5, except
    that every second episode ends with a discount of 0.
    """

    def __init__(self, buffer: SequenceReplayBuffer, lengths: tuple[int, ...]) -> None:
        self.buffer, self.lengths = buffer, lengths
        self.episode, self.step = (np.zeros(len(lengths), int) for _ in range(2))

    def observations(self) -> np.ndarray:
        values = 100.0 * self.episode + self.step
        return np.stack([values, np.arange(len(values))], axis=1)

    def feed(self, rounds: int) -> SequenceReplayBuffer:
        for _ in range(rounds):
            before = self.observations()
            self.step += 1
            after = self.observations()
            ended = self.step == self.lengths
            final = ended & (self.episode % 2 == 0)
            reward = after[:, 0]
            discount = np.where(final, 0.0, 0.5)
            self.buffer.add(
                Transition(before, reward[:, np.newaxis] / 2**14, reward, discount, after), ended
            )
            self.episode += ended
            self.step[ended] = 0
        return self.buffer


def empty(capacity: int, *, seed: int = 0, **sizes: int) -> SequenceReplayBuffer:
    return SequenceReplayBuffer(capacity, SequenceLayout(2, 1, **sizes), seed=seed)


def buffer_of(
    capacity: int = 1000, lengths: tuple[int, ...] = (5, 3), rounds: int = 30, **options: int
) -> SequenceReplayBuffer:
    return Feeder(empty(capacity, **{"length": 4} | options), lengths).feed(rounds)


def check(window: Window, lengths: tuple[int, ...]) -> None:
    """Checks all values of one window `[T]`."""
    role = window.role
    there = role != PADDING
    count = int(there.sum())
    assert count, "a window must not be empty"
    assert there[:count].all(), "padding must come last"
    assert (np.diff(role[:count]) >= 0).all(), "burn-in must come before learned steps"
    environment = int(window.observation[0, 1])
    episode, first = divmod(window.observation[0, 0], 100)
    last = lengths[environment]
    numbers = 100 * episode + first + np.arange(count + 1)
    np.testing.assert_array_equal(window.observation[: count + 1, 0], numbers)
    np.testing.assert_array_equal(window.observation[: count + 1, 1], environment)
    np.testing.assert_array_equal(window.reward[:count], numbers[1:])
    np.testing.assert_allclose(window.action[:count, 0], numbers[1:] / 2**14, rtol=1e-6)
    # A window also contains the action and reward of the step before its first step, or zeros if
    # the window begins with the episode.
    before = numbers[0] if first else 0.0
    assert window.previous_reward[0] == before
    np.testing.assert_allclose(window.previous_action[0], before / 2**14, rtol=1e-6)
    is_end = numbers[1:] % 100 == last
    assert not is_end[:-1].any(), "a window must not cross the end of an episode"
    np.testing.assert_array_equal(
        window.discount[:count], np.where(is_end & (episode % 2 == 0), 0.0, 0.5)
    )


def windows(buffer: SequenceReplayBuffer, updates: int = 20, batch: int = 50) -> list[Window]:
    sampled = buffer.sample(updates, batch)
    flat = [part.reshape(-1, *part.shape[2:]) for part in sampled]
    return [Window(*parts) for parts in zip(*flat, strict=True)]


@pytest.mark.parametrize("burn_in", [0, 1, 3])
@pytest.mark.parametrize("capacity", [1000, 60, 17])
@pytest.mark.parametrize("lengths", [(5, 3), (1,), (1, 2, 30), (40,)])
def test_windows_contain_consecutive_steps_of_one_episode(
    capacity: int, lengths: tuple[int, ...], burn_in: int
) -> None:
    feeder = Feeder(empty(capacity, length=6, burn_in=burn_in), lengths)
    for _ in range(5):
        for window in windows(feeder.feed(9), 2, 25):
            check(window, lengths)


@pytest.mark.parametrize(("length", "burn_in"), [(2, 0), (4, 0), (6, 3), (9, 0)])
def test_every_step_is_learned_from_with_the_same_probability(length: int, burn_in: int) -> None:
    buffer = buffer_of(rounds=30, lengths=(5, 3), length=length, burn_in=burn_in)
    sampled = buffer.sample(200, 300)
    learned = sampled.role == LEARNED
    keys = np.stack([sampled.reward[learned], sampled.observation[..., 1:, 1][learned]], axis=1)
    steps, counts = np.unique(keys, axis=0, return_counts=True)
    assert len(steps) == 60  # the number of steps in both environments
    expected = counts.mean()
    # A window contains a step at most once, so the standard deviation of a count is at most
    # √expected.
    assert np.abs(counts - expected).max() < 6 * np.sqrt(expected * (length - burn_in))


def test_burn_in_uses_all_available_steps() -> None:
    buffer = buffer_of(lengths=(20,), rounds=60, length=8, burn_in=5)
    for window in windows(buffer):
        first = int(window.observation[0, 0]) % 100
        warmed = int((window.role == BURN_IN).sum())
        assert warmed == 5 or first == 0
        assert (window.role == LEARNED).any()


def test_updates_per_call_do_not_change_windows() -> None:
    whole = buffer_of().sample_rows(12, 5).copy()
    other = buffer_of()
    parts = [other.sample_rows(updates, 5).copy() for updates in (1, 4, 7)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_the_sample_array_is_reused_and_aligned() -> None:
    buffer = buffer_of()
    first = buffer.sample_rows(3, 8)
    again = buffer.sample_rows(3, 8)
    assert np.shares_memory(first, again)
    assert first.ctypes.data % 64 == 0
    assert first.shape == (3, 8, 5, buffer.layout.width)


@pytest.mark.parametrize("capacity", [1000, 40, 37])
@pytest.mark.parametrize("rounds", [1, 4, 15, 50])
def test_a_restored_buffer_continues_identically(capacity: int, rounds: int) -> None:
    feeder = Feeder(empty(capacity, length=6, burn_in=2, seed=3), (7, 4, 2))
    buffer = feeder.feed(rounds)
    buffer.sample_rows(2, 3)
    copy = empty(capacity, length=6, burn_in=2, seed=9)
    start = buffer.added - len(buffer)
    middle = start + len(buffer) // 2
    copy.restore_rows(start, buffer.rows(start, middle))
    copy.restore_rows(middle, buffer.rows(middle, buffer.added))
    copy.restore(unpacked(packed(buffer.state())))
    again = Feeder(copy, feeder.lengths)
    again.episode, again.step = feeder.episode.copy(), feeder.step.copy()
    for _ in range(12):
        np.testing.assert_array_equal(copy.sample_rows(3, 40), buffer.sample_rows(3, 40))
        feeder.feed(5)
        again.feed(5)
    np.testing.assert_equal(copy.state(), buffer.state())


def test_segments_with_links_to_overwritten_rows_are_restored() -> None:
    feeder = Feeder(empty(30, length=4), (5, 3))
    segments = []
    for _ in range(6):
        start = feeder.buffer.added
        feeder.feed(4)
        segments.append((start, feeder.buffer.rows(start, feeder.buffer.added)))
    copy = empty(30, length=4)
    for start, rows in segments[2:]:
        copy.restore_rows(start, rows)
    copy.restore(feeder.buffer.state())
    np.testing.assert_array_equal(copy.sample_rows(5, 50), feeder.buffer.sample_rows(5, 50))


def test_reset_episodes_are_not_joined_to_previous_ones() -> None:
    feeder = Feeder(empty(100, length=6), (50, 50))
    feeder.feed(3)
    feeder.buffer.on_reset(np.array([True, False]))
    feeder.episode[0], feeder.step[0] = 1, 0
    feeder.feed(3)
    for window in windows(feeder.buffer):
        check(window, feeder.lengths)


def test_the_number_of_environments_may_change_if_all_are_reset() -> None:
    buffer = buffer_of(lengths=(50, 50), rounds=3)
    other = Feeder(buffer, (50, 50, 50))
    with pytest.raises(ValueError, match="environments changed from 2 to 3: call on_reset"):
        other.feed(1)
    with pytest.raises(ValueError, match=r"began must have shape \[2\]"):
        buffer.on_reset(np.array([True, False, True]))
    other = Feeder(buffer, (50, 50, 50))
    buffer.on_reset(np.ones(3, bool))
    for window in windows(other.feed(5)):
        check(window, other.lengths)


def test_an_unmarked_episode_end_is_detected() -> None:
    feeder = Feeder(empty(100, length=6), (50, 50))
    feeder.feed(3)
    feeder.step[1] = 7
    before = feeder.buffer.added
    with pytest.raises(ValueError, match=r"environment 1 must equal the .*: mark the last step"):
        feeder.feed(1)
    assert feeder.buffer.added == before


@pytest.mark.parametrize(
    ("part", "value", "error", "message"),
    [
        ("reward", np.zeros((2, 1)), ValueError, r"reward must have shape \[N\]"),
        ("action", np.zeros((2, 3)), ValueError, r"action must have shape \[N, 1\]"),
        ("reward", np.array([0.0, np.nan]), FloatingPointError, "reward must be finite .*nan in"),
        ("observation", np.array([[0.0, 1e39]] * 2), FloatingPointError, "observation must be fin"),
    ],
)
def test_invalid_transitions_are_rejected_and_not_stored(
    part: str, value: np.ndarray, error: type[Exception], message: str
) -> None:
    buffer = empty(100, length=6)
    good = Transition(np.zeros((2, 2)), np.zeros((2, 1)), np.zeros(2), np.ones(2), np.ones((2, 2)))
    with pytest.raises(error, match=message):
        buffer.add(good._replace(**{part: value}), np.zeros(2, bool))
    assert not buffer.added
    with pytest.raises(ValueError, match=r"ended must have shape \[2\]; got \(1,\)"):
        buffer.add(good, np.zeros(1, bool))
    with pytest.raises(ValueError, match="cannot sample from an empty buffer"):
        buffer.sample_rows(1, 1)


def test_an_episode_instead_of_one_step_per_environment_is_rejected() -> None:
    buffer, places = empty(20, length=4), np.arange(8.0).reshape(4, 2)
    episode = Transition(places, np.zeros((4, 1)), np.ones(4), np.ones(4), places + 2)
    with pytest.raises(ValueError, match="got 4 steps of one episode: add them one"):
        buffer.add(episode, np.arange(4) == 3)
    assert buffer.added == 0
    # Environments with constant observations are not mistaken for one episode.
    still = episode._replace(observation=np.ones((4, 2)), next_observation=np.ones((4, 2)))
    buffer.add(still, np.arange(4) == 3)
    assert buffer.added == 8
    # Nor are two environments, if the observation of one equals the next observation of the other.
    two = Transition(*(part[:2] for part in episode))
    empty(20, length=4).add(two, np.array([False, True]))


def test_invalid_sizes_are_rejected() -> None:
    for options, message in (
        ({"length": 1}, "length must be at least 2; got 1"),
        ({"length": 5, "burn_in": 4}, "burn_in must leave at least 2 of 5 steps"),
        ({"length": 5, "burn_in": -1}, "burn_in must be at least 0"),
    ):
        with pytest.raises(ValueError, match=message):
            empty(10, **options)
    with pytest.raises(ValueError, match="at least 12 for 3 environments; got 11"):
        Feeder(empty(11, length=3), (2, 2, 2)).feed(1)


def test_rows_that_are_not_episode_steps_are_rejected() -> None:
    for wrong in (-1.0, 0.5, 7.0, np.nan):
        rows = np.zeros((3, SequenceLayout(2, 1, 4).width), np.float32)
        rows[1, -1] = wrong
        buffer = empty(10, length=4)
        with pytest.raises(ValueError, match="rows 0 to 3 are not valid episode steps"):
            buffer.restore_rows(0, rows)
        assert buffer.added == 0
    buffer = buffer_of(rounds=2)
    with pytest.raises(ValueError, match="last row of each episode must be in the buffer"):
        buffer.restore(buffer.state() | {"last": np.array([999, -1])})


def test_each_observation_is_stored_once() -> None:
    layout = SequenceLayout(17, 6, 32)
    assert layout.width == 6 + 1 + 1 + 17 + 1
    assert layout.row_bytes == 4 * layout.width + 8
    buffer = buffer_of(lengths=(5,), rounds=10)
    assert buffer.added == 12  # 10 steps and 2 first observations of episodes
