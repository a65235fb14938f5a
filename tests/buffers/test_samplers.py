"""Custom samplers. In these tests, the reward of a row is the number of the row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from eagerly.buffers import (
    Buffer,
    FrameLayout,
    Frames,
    Layout,
    ReplayBuffer,
    RowLayout,
    SequenceLayout,
    Transition,
    UniformSampler,
    replay_buffer,
)

EPISODES = [SequenceLayout(2, 1, length=4), FrameLayout(8, 1, images=(Frames(0, 2, 4),))]


def numbered(start: int, count: int) -> Transition:
    number = np.arange(start, start + count, dtype=np.float64)
    observation = np.zeros((count, 2))
    return Transition(observation, np.zeros((count, 1)), number, np.ones(count), observation)


def fed(buffer: Buffer, counts: list[int]) -> Buffer:
    for count in counts:
        buffer.add(numbered(buffer.added, count))
    return buffer


class ByPriority:
    """Draws the rows with the highest priority, which is 100 until a row gets feedback."""

    per_row = ("td_error", "age")

    def __init__(self, capacity: int = 10) -> None:
        self.priority = np.zeros(capacity)
        self.told: list[list[int]] = []
        self.heard: list[tuple[list[list[int]], dict[str, np.ndarray]]] = []

    def draw(self, count: int, shape: tuple[int, int]) -> np.ndarray:
        order = np.argsort(-self.priority[:count], kind="stable")
        return np.resize(order, shape)

    def added(self, places: np.ndarray) -> None:
        self.told.append(places.tolist())
        self.priority[places] = 100.0

    def weights(self, places: np.ndarray) -> np.ndarray:
        return (1 / (1 + places)).astype(np.float32)

    def feedback(self, places: np.ndarray, per_row: Mapping[str, np.ndarray]) -> None:
        self.heard.append((places.tolist(), dict(per_row)))
        self.priority[places] = per_row["td_error"]

    def state(self) -> dict[str, Any]:
        return {"priority": self.priority}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.priority = np.array(state["priority"])


class Fixed(UniformSampler):
    """A sampler that returns fixed draws and weights."""

    def __init__(self, draws: Any, weights: np.ndarray | None = None) -> None:
        super().__init__()
        self.draws, self.fixed_weights = np.array(draws), weights

    def draw(self, count: int, shape: tuple[int, ...]) -> np.ndarray:
        return self.draws

    def weights(self, places: np.ndarray) -> np.ndarray | None:
        return self.fixed_weights


def rewards(rows: np.ndarray) -> list[list[float]]:
    return RowLayout(2, 1).unpack(rows).reward.tolist()


def test_a_sampler_selects_rows_and_receives_feedback_in_order() -> None:
    sampler = ByPriority()
    buffer = fed(ReplayBuffer(10, 2, 1, sampler=sampler), [4])
    rows, weights = buffer.draw(2, 2)
    assert rewards(rows) == [[0, 1], [2, 3]]
    np.testing.assert_array_equal(weights, np.array([[1, 1 / 2], [1 / 3, 1 / 4]], np.float32))
    errors, ages = np.array([[1.0, 7.0], [5.0, 3.0]]), np.zeros((2, 2))
    buffer.feedback({"td_error": errors, "age": ages})
    assert rewards(buffer.sample_rows(1, 4)) == [[1, 2, 3, 0]]
    assert buffer.sample(1, 2).reward.tolist() == [[1, 2]]
    buffer.feedback({"td_error": np.array([[0.5, 2.0]]), "age": ages[:1]})
    assert rewards(buffer.draw(1, 4).rows) == [[3, 2, 0, 1]]
    assert [places for places, _ in sampler.heard] == [[[0, 1], [2, 3]], [[1, 2]]]
    assert sampler.heard[0][1] == {"td_error": errors, "age": ages}


def test_samplers_are_notified_of_new_rows_across_the_end_of_the_ring() -> None:
    sampler = ByPriority()
    fed(ReplayBuffer(10, 2, 1, sampler=sampler), [4, 4, 4, 1])
    assert sampler.told == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1], [2]]


def test_samplers_are_notified_of_restored_rows_before_their_state() -> None:
    sampler, other = ByPriority(), ByPriority()
    buffer = fed(ReplayBuffer(10, 2, 1, sampler=sampler), [10, 3])
    buffer.draw(1, 10)
    buffer.feedback({"td_error": np.arange(10.0)[np.newaxis], "age": np.zeros((1, 10))})
    copy = ReplayBuffer(10, 2, 1, sampler=other)
    copy.restore_rows(3, buffer.rows(3, 8))
    copy.restore_rows(8, buffer.rows(8, 13))
    assert other.told == [[3, 4, 5, 6, 7], [8, 9, 0, 1, 2]]
    state = {"added": 13, "sampler": {"priority": sampler.priority}, "capacity": 10}
    assert buffer.state() == state
    smaller = ReplayBuffer(5, 2, 1, sampler=ByPriority())
    smaller.restore_rows(8, buffer.rows(8, 13))
    with pytest.raises(ValueError, match="capacity of ReplayBuffer must be 5; got 10"):
        smaller.restore(state)
    copy.restore(state)
    assert rewards(copy.draw(1, 3).rows) == rewards(buffer.draw(1, 3).rows) == [[9, 8, 7]]


def test_uniform_draws_depend_on_the_seed_and_have_no_weights() -> None:
    generator = np.random.Generator(np.random.PCG64(3))
    plain = fed(ReplayBuffer(10, 2, 1, seed=3), [7])
    given = fed(ReplayBuffer(10, 2, 1, sampler=UniformSampler(3)), [7])
    for shape in ((2, 5), (1, 3)):
        expected = generator.integers(7, size=shape)
        for buffer in (plain, given):
            rows, weights = buffer.draw(*shape)
            assert rewards(rows) == expected.tolist()
            assert weights is None
    state = {"added": 7, "sampler": {"generator": dict(generator.bit_generator.state)}}
    assert plain.state() == given.state() == state
    plain.feedback({})


@pytest.mark.parametrize("layout", [RowLayout(2, 1), *EPISODES])
def test_buffers_of_any_layout_accept_samplers_without_per_row(layout: Layout) -> None:
    size, ended = layout.observation_size, np.zeros(1, bool)
    one, other = (
        replay_buffer(layout, 100, seed=5),
        replay_buffer(layout, 100, sampler=UniformSampler(5)),
    )
    for _ in range(5):
        step = Transition(
            np.ones((1, size)), np.ones((1, 1)), np.ones(1), np.ones(1), np.ones((1, size))
        )
        one.add(step, ended)
        other.add(step, ended)
    np.testing.assert_array_equal(one.draw(2, 9).rows, other.draw(2, 9).rows)
    assert one.state() == other.state()


@pytest.mark.parametrize("layout", EPISODES)
def test_episode_buffers_reject_samplers_with_per_row(layout: Layout) -> None:
    with pytest.raises(TypeError, match="requires td_error, age: use it without memory"):
        replay_buffer(layout, 100, sampler=ByPriority())


@pytest.mark.parametrize(
    ("per_row", "message"),
    [
        ({"age": np.zeros((2, 3))}, r"must contain td_error for the sampler; got \['age'\]"),
        (
            {"td_error": np.zeros(6), "age": np.zeros((2, 3))},
            r"td_error must have the shape \[2, 3\] of the last draw; got \(6,\)",
        ),
    ],
)
def test_invalid_feedback_is_rejected(per_row: Any, message: str) -> None:
    buffer = fed(ReplayBuffer(10, 2, 1, sampler=ByPriority()), [4])
    with pytest.raises(ValueError, match="call draw first"):
        buffer.feedback(per_row)
    buffer.draw(2, 3)
    with pytest.raises(ValueError, match=message):
        buffer.feedback(per_row)
    buffer.restore_rows(buffer.added, buffer.rows(0, 1))
    with pytest.raises(ValueError, match="call draw first"):
        buffer.feedback({"td_error": np.zeros((2, 3)), "age": np.zeros((2, 3))})


@pytest.mark.parametrize(
    ("sampler", "message"),
    [
        (Fixed([[0, 4]]), "must draw from 0 to 3; got 0 to 4"),
        (Fixed([[-1, 0]]), "must draw from 0 to 3; got -1 to 0"),
        (Fixed([0, 1]), r"integers of shape \[1, 2\]; got int64 \(2,\)"),
        (Fixed([[0.0, 1.0]]), r"integers of shape \[1, 2\]; got float64 \(1, 2\)"),
        (Fixed([[0, 1]], np.ones((1, 2))), r"float32 of shape \[1, 2\]; got float64 \(1, 2\)"),
        (Fixed([[0, 1]], np.ones(2, np.float32)), r"\[1, 2\]; got float32 \(2,\)"),
        (Fixed([[0, 1]], np.array([[1, np.nan]], np.float32)), "weights must be finite"),
        (Fixed([[0, 1]], np.array([[1, -1]], np.float32)), "at least 0; got -1.0 to 1.0"),
    ],
)
def test_invalid_draws_and_weights_are_rejected(sampler: Fixed, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fed(ReplayBuffer(10, 2, 1, sampler=sampler), [4]).draw(1, 2)


def test_a_weight_may_be_0() -> None:
    buffer = fed(ReplayBuffer(10, 2, 1, sampler=Fixed([[0, 1]], np.float32([[1, 0]]))), [4])
    assert buffer.draw(1, 2).weights.tolist() == [[1, 0]]


def test_per_row_must_be_a_tuple() -> None:
    sampler = ByPriority()
    sampler.per_row = "td_error"  # type: ignore[assignment]
    with pytest.raises(TypeError, match="per_row must be a tuple of names; got 'td_error'"):
        ReplayBuffer(10, 2, 1, sampler=sampler)
