"""Batches from logged data and a replay buffer."""

from __future__ import annotations

import numpy as np
import pytest

from eagerly.buffers import (
    LAPSampler,
    MixedBuffer,
    ProportionalSampler,
    ReplayBuffer,
    SequenceLayout,
    SequenceReplayBuffer,
    Transition,
)
from eagerly.buffers.episode_buffer import NONE


def filled(buffer: ReplayBuffer, first: int, count: int) -> ReplayBuffer:
    """Adds transitions whose rewards are consecutive numbers."""
    rewards = np.arange(first, first + count, dtype=np.float32)
    zeros = np.zeros((count, 1))
    buffer.add(Transition(zeros, zeros, rewards, np.ones(count), zeros))
    return buffer


def mixed(share: float, *, online: int = 0, capacity: int = 4, is_lap: bool = False) -> MixedBuffer:
    samplers = [LAPSampler(seed, exponent=1.0) if is_lap else None for seed in range(2)]
    data = filled(ReplayBuffer(10, 1, 1, seed=1, sampler=samplers[0]), 0, 10)
    found = MixedBuffer(data, ReplayBuffer(capacity, 1, 1, sampler=samplers[1]), share)
    for number in range(online):
        filled(found, 100 + number, 1)  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize(("share", "of_data"), [(0.0, 0), (0.5, 4), (0.3, 2), (1.0, 8)])
def test_a_share_of_each_batch_is_from_the_data(share: float, of_data: int) -> None:
    rewards = mixed(share, online=6).sample(3, 8).reward
    assert (rewards[:, :of_data] < 10).all()
    assert set(rewards[:, of_data:].ravel().tolist()) <= {102.0, 103.0, 104.0, 105.0}


def test_all_samples_are_from_the_data_while_the_replay_buffer_is_empty() -> None:
    buffer = mixed(0.5)
    assert (buffer.sample(2, 8).reward < 10).all()
    assert (len(buffer), buffer.added) == (10, 10)


def test_the_ring_never_overwrites_the_data_and_both_are_restored() -> None:
    buffer = mixed(0.5, online=6)
    assert (len(buffer), buffer.added) == (14, 16)
    buffer.draw(1, 4)
    parts = buffer.rows(0, 10), buffer.rows(12, 16)
    with pytest.raises(ValueError, match="rows 1 to 6 are not stored"):
        buffer.rows(11, 16)
    restored = MixedBuffer(ReplayBuffer(10, 1, 1, seed=1), ReplayBuffer(4, 1, 1), 0.5)
    restored.restore_rows(0, parts[0])
    restored.restore_rows(12, parts[1])
    restored.restore(buffer.state())
    np.testing.assert_array_equal(restored.draw(2, 6).rows, buffer.draw(2, 6).rows)
    with pytest.raises(ValueError, match="the first rows must be the rows of the data, at most 10"):
        MixedBuffer(ReplayBuffer(10, 1, 1), ReplayBuffer(4, 1, 1), 0.5).restore_rows(12, parts[1])


def test_episodes_begin_again_only_in_the_replay_buffer() -> None:
    data, online = (SequenceReplayBuffer(9, SequenceLayout(1, 1, length=2)) for _ in range(2))
    buffer, ones = MixedBuffer(data, online, 0.5), np.ones((1, 1))
    for part in (data, buffer):
        part.add(Transition(ones, ones, ones[0], ones[0], ones), np.zeros(1, bool))
    buffer.on_reset(np.ones(1, bool))
    assert [part.state()["last"].tolist() for part in (data, online)] == [[1], [NONE]]


def test_feedback_reaches_the_sampler_of_each_row() -> None:
    buffer = mixed(0.5, online=4, is_lap=True)
    rewards = buffer.sample(1, 4).reward
    first, last = rewards[0, 0], rewards[0, -1]
    errors = np.where(np.isin(rewards, [first, last]), 1e6, 1e-9)
    buffer.feedback({"td_error": errors})
    drawn = buffer.sample(1, 40).reward[0]
    assert (drawn[:20] == first).mean() > 0.9
    assert (drawn[20:] == last).mean() > 0.9


def test_weights_belong_to_the_rows_of_their_sampler() -> None:
    samplers = [ProportionalSampler(seed, exponent=1.0, correction=1.0) for seed in range(2)]
    parts = [ReplayBuffer(10, 1, 1, seed=1, sampler=sampler) for sampler in samplers]
    buffer = MixedBuffer(filled(parts[0], 0, 1), filled(parts[1], 100, 2), 0.25)
    samplers[1].feedback(np.array([[0, 1]]), {"td_error": np.array([[1.0, 4.0]], np.float32)})
    sample = buffer.draw(1, 40)
    assert sample.weights is not None
    rewards = buffer.layout.unpack(sample.rows).reward[0]
    expected = np.where(rewards == 101.0, 0.25, 1.0)
    np.testing.assert_allclose(sample.weights[0], expected, 1e-5)
    assert set(rewards[:10].tolist()) == {0.0}
