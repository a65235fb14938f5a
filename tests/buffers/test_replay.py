"""The replay buffer. In these tests, an observation is the number of its transition."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable

import numpy as np
import pytest

from eagerly.buffers import ReplayBuffer, RowLayout, Transition, UniformSampler


def numbered(start: int, count: int) -> Transition:
    """Returns transitions number start, start + 1 and so on. All values depend on the number."""
    n = np.arange(start, start + count, dtype=np.float64)
    return Transition(
        observation=np.stack([n, n + 0.25], axis=1),
        action=-n[:, np.newaxis] / 2**14,
        reward=np.ones(count),
        discount=np.where(n % 3 == 0, 0.0, 0.5),
        next_observation=np.stack([n + 1, n + 1.25], axis=1),
    )


def buffer_of(capacity: int, added: int, *, seed: int = 0) -> ReplayBuffer:
    buffer = ReplayBuffer(capacity, 2, 1, seed=seed)
    for start in range(added):
        buffer.add(numbered(start, 1))
    return buffer


def sampled_numbers(buffer: ReplayBuffer) -> set[int]:
    return set(buffer.sample(1, 2000).observation[..., 0].astype(int).ravel().tolist())


def test_a_row_is_observation_action_reward_discount_and_next_observation() -> None:
    assert RowLayout(17, 6).width == 42
    row = np.arange(7.0)
    parts = RowLayout(2, 1).unpack(row)
    assert [np.ravel(p).tolist() for p in parts] == [[0, 1], [2], [3], [4], [5, 6]]


def test_samples_have_the_requested_shapes_and_complete_transitions() -> None:
    batch = buffer_of(10, 7).sample(3, 5)
    assert [p.shape for p in batch] == [(3, 5, 2), (3, 5, 1), (3, 5), (3, 5), (3, 5, 2)]
    n = batch.observation[..., 0]
    np.testing.assert_array_equal(batch.observation[..., 1], n + 0.25)
    np.testing.assert_array_equal(batch.action[..., 0], -n / 2**14)
    np.testing.assert_array_equal(batch.reward, np.ones((3, 5)))
    np.testing.assert_array_equal(batch.discount, np.where(n % 3 == 0, 0.0, 0.5))
    np.testing.assert_array_equal(batch.next_observation[..., 0], n + 1)


@pytest.mark.parametrize("added", [1, 4, 10])
def test_exactly_the_filled_rows_are_sampled(added: int) -> None:
    buffer = buffer_of(10, added)
    assert len(buffer) == added
    assert sampled_numbers(buffer) == set(range(added))


@pytest.mark.parametrize("added", [11, 15, 20, 37])
def test_a_full_buffer_keeps_the_newest_transitions(added: int) -> None:
    buffer = buffer_of(10, added)
    assert len(buffer) == 10
    assert sampled_numbers(buffer) == set(range(added - 10, added))


def test_several_environments_can_add_across_the_end_of_the_ring() -> None:
    buffer = ReplayBuffer(10, 2, 1)
    for start in range(0, 28, 4):
        buffer.add(numbered(start, 4))
    assert sampled_numbers(buffer) == set(range(18, 28))


def test_sampling_is_uniform() -> None:
    numbers = buffer_of(8, 8).sample(100, 800).observation[..., 0].astype(int)
    counts = np.bincount(numbers.ravel(), minlength=8)
    expected = numbers.size / 8
    # A chi-squared statistic with 7 degrees of freedom exceeds 24.3 with a probability of 0.1%.
    assert ((counts - expected) ** 2 / expected).sum() < 24.3


@pytest.mark.parametrize("calls", [(5, 7), (1, 11), (3, 3, 3, 3)])
def test_updates_per_call_do_not_change_the_rows(calls: tuple[int, ...]) -> None:
    whole = buffer_of(10, 7).sample_rows(12, 5).copy()
    other = buffer_of(10, 7)
    np.testing.assert_array_equal(
        np.concatenate([other.sample_rows(updates, 5).copy() for updates in calls]), whole
    )


def test_the_seed_and_the_generator_state_determine_the_sample() -> None:
    one, same, other = buffer_of(10, 7), buffer_of(10, 7), buffer_of(10, 7, seed=1)
    state = one.state()
    first = one.sample_rows(2, 5).copy()
    np.testing.assert_array_equal(first, same.sample_rows(2, 5))
    assert not np.array_equal(first, other.sample_rows(2, 5))
    assert not np.array_equal(first, one.sample_rows(2, 5))
    one.restore(state)
    np.testing.assert_array_equal(first, one.sample_rows(2, 5))


@pytest.mark.parametrize("added", [6, 10, 13, 29])
def test_stored_rows_restore_an_equal_buffer(added: int) -> None:
    buffer, copy = buffer_of(10, added), ReplayBuffer(10, 2, 1)
    oldest = added - len(buffer)
    middle = oldest + len(buffer) // 3
    for start, stop in ((oldest, middle), (middle, added)):
        copy.restore_rows(start, buffer.rows(start, stop))
    assert copy.added == added
    np.testing.assert_array_equal(copy.sample_rows(3, 50), buffer.sample_rows(3, 50))
    for each in (buffer, copy):
        each.add(numbered(added, 3))
    np.testing.assert_array_equal(copy.sample_rows(3, 50), buffer.sample_rows(3, 50))


def test_a_smaller_buffer_restores_the_newest_rows() -> None:
    buffer, smaller = buffer_of(10, 9), ReplayBuffer(4, 2, 1)
    smaller.restore_rows(0, buffer.rows(0, 9))
    assert sampled_numbers(smaller) == {5, 6, 7, 8}


def test_overwritten_rows_cannot_be_read() -> None:
    with pytest.raises(ValueError, match=r"rows 2 to 5 are not stored; .* 3 to 13"):
        buffer_of(10, 13).rows(2, 5)


def test_rows_must_be_restored_in_order() -> None:
    buffer = buffer_of(10, 3)
    with pytest.raises(ValueError, match="must continue at 3; got 5"):
        buffer.restore_rows(5, np.zeros((2, 7), np.float32))
    with pytest.raises(ValueError, match=r"float32 of shape \[n, 7\]; got float64 \(2, 7\)"):
        buffer.restore_rows(3, np.zeros((2, 7)))


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("reward", np.ones((4, 1)), r"reward must have shape \[N\] .*got \(4, 1\)"),
        ("discount", np.ones(3), r"discount must have shape \[N\] .*got \(3,\)"),
        ("observation", np.ones((4, 3)), r"observation must have shape \[N, 2\] .*got \(4, 3\)"),
        ("action", np.ones(4), r"action must have shape \[N, 1\] .*got \(4,\)"),
    ],
)
def test_a_wrong_shape_is_rejected_and_nothing_is_stored(
    part: str, value: np.ndarray, message: str
) -> None:
    buffer = ReplayBuffer(10, 2, 1)
    with pytest.raises(ValueError, match=message):
        buffer.add(numbered(0, 4)._replace(**{part: value}))
    assert len(buffer) == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e39])
@pytest.mark.parametrize("part", Transition._fields)
def test_values_not_finite_in_float32_are_rejected_and_not_stored(part: str, bad: float) -> None:
    transitions = numbered(0, 4)
    getattr(transitions, part)[2, ...] = bad
    buffer = ReplayBuffer(10, 2, 1)
    with pytest.raises(FloatingPointError, match=f"{part} must be finite .* in environment 2"):
        buffer.add(transitions)
    assert len(buffer) == 0


def test_actions_outside_the_range_are_rejected_and_nothing_is_stored() -> None:
    buffer = ReplayBuffer(10, 2, 2)
    step = Transition(
        np.zeros((2, 2)),
        np.array([[1, -1], [0.5, -1.5]]),
        np.zeros(2),
        np.ones(2),
        np.zeros((2, 2)),
    )
    with pytest.raises(ValueError, match=r"must be in \[-1, 1\]; got -1.5 in environment 1, dim"):
        buffer.add(step)
    assert buffer.added == 0


def test_large_values_whose_sum_overflows_are_stored() -> None:
    buffer = ReplayBuffer(10, 2, 1)
    transitions = numbered(0, 4)
    transitions.observation[:] = 3e38
    buffer.add(transitions)
    assert len(buffer) == 4


def test_an_empty_buffer_and_invalid_sizes_are_rejected() -> None:
    with pytest.raises(ValueError, match="empty buffer"):
        ReplayBuffer(10, 2, 1).sample(1, 1)
    with pytest.raises(ValueError, match="at least 1; got 0 and 5"):
        buffer_of(10, 3).sample(0, 5)
    with pytest.raises(ValueError, match="capacity must be at least 1; got 0"):
        ReplayBuffer(0, 2, 1)
    with pytest.raises(ValueError, match="cannot add 11 transitions to a buffer of capacity 10"):
        ReplayBuffer(10, 2, 1).add(numbered(0, 11))


def test_rows_are_stored_in_one_float32_array() -> None:
    buffer = ReplayBuffer(1_000_000, 17, 6)
    assert buffer._rows.nbytes == 168_000_000
    assert buffer._rows.flags.c_contiguous


class AddingSampler(UniformSampler):
    """Another thread adds a row while this sampler draws."""

    buffer: ReplayBuffer
    thread: threading.Thread

    def draw(self, count: int, shape: tuple[int, int]) -> np.ndarray:
        self.thread = threading.Thread(target=self.buffer.add, args=(numbered(7, 1),))
        self.thread.start()
        self.thread.join(timeout=0.01)
        assert self.thread.is_alive()  # it waits
        return super().draw(count, shape)


def test_rows_of_another_thread_are_added_after_a_draw() -> None:
    sampler = AddingSampler()
    sampler.buffer = buffer = ReplayBuffer(2, 2, 1, sampler=sampler)
    buffer.add(numbered(1, 2))
    assert set(buffer.sample(1, 50).observation[..., 0].ravel().tolist()) == {1.0, 2.0}
    sampler.thread.join()
    assert buffer.added == 3


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_a_buffer_can_be_copied(copied: Callable[[ReplayBuffer], ReplayBuffer]) -> None:
    buffer = ReplayBuffer(3, 2, 1)
    buffer.add(numbered(0, 1))
    another = copied(buffer)
    another.add(numbered(1, 1))
    assert (buffer.added, another.added) == (1, 2)
    buffer.add(numbered(1, 1))
    np.testing.assert_array_equal(another.rows(0, 2), buffer.rows(0, 2))
    with pytest.raises(FloatingPointError, match="reward must be finite"):
        another.add(numbered(1, 1)._replace(reward=np.array([np.nan])))
