"""A custom accumulator in a collector, checked by arithmetic.

In the environment `Counting`, an observation is (random number drawn per episode, step in the
episode), and each reward is 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from eagerly import TD3, Collector, TD3Config
from eagerly.buffers import Buffer, OneStep, Transition, replay_buffer
from eagerly.state import flatten_state, unflatten_state
from tests.toys import Counting

LENGTH, DISCOUNT = 5, 0.5


class TwoSteps:
    """Creates transitions of two steps. Only the last transition of an episode has one step."""

    one_to_one = False

    def __init__(self) -> None:
        self.kept: dict[int, list[np.ndarray]] = {}

    def accumulate(
        self, transitions: Transition, ended: np.ndarray
    ) -> tuple[Transition, np.ndarray]:
        made, ends = [], []
        for index, over in enumerate(ended):
            step = Transition(*(np.array(part[index]) for part in transitions))
            if index in self.kept:
                first = Transition(*self.kept.pop(index))
                reward = first.reward + first.discount * step.reward
                discount = first.discount * step.discount
                first = first._replace(reward=reward, discount=discount)
                made.append(first._replace(next_observation=step.next_observation))
                ends.append(False)
            if over:
                made.append(step)
                ends.append(True)
            else:
                self.kept[index] = list(step)
        if not made:
            return transitions, np.zeros(0, bool)
        return Transition(*map(np.stack, zip(*made, strict=True))), np.array(ends)

    def on_reset(self, began: np.ndarray) -> None:
        for index in np.flatnonzero(began):
            self.kept.pop(int(index), None)

    def state(self) -> dict[str, Any]:
        return {"kept": [[index, step] for index, step in self.kept.items()]}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.kept = {index: list(step) for index, step in state["kept"]}


def collector_of(
    accumulator: Any = None, *, noisy: bool = False, **settings: Any
) -> tuple[Buffer, Collector]:
    made = Counting()
    config = TD3Config(hidden_sizes=(8,), mode="eager", discount=DISCOUNT, **settings)
    agent = TD3(made.observation_space, made.action_space, config)
    buffer = replay_buffer(agent.layout, 1000)
    env_kwargs = {"length": LENGTH, "noisy": noisy}
    collector = Collector.make(
        agent, Counting, buffer, num_envs=2, env_kwargs=env_kwargs, warmup_steps=1000,
        accumulator=accumulator,
    )  # fmt: skip
    return buffer, collector


def collect(collector: Collector, steps: int) -> None:
    for _ in range(steps):
        collector.collect()


def stored(buffer: Buffer) -> Transition:
    return buffer.layout.unpack(buffer.rows(0, buffer.added))


def test_the_buffer_stores_the_transitions_of_the_accumulator() -> None:
    (single, plain), (buffer, collector) = collector_of(), collector_of(TwoSteps())
    for each in (plain, collector):
        collect(each, 1)
    assert (single.added, buffer.added, collector.steps) == (2, 0, 2)
    for each in (plain, collector):
        collect(each, LENGTH)
    parts, steps = stored(buffer), stored(single)
    # Both environments completed an episode of 5 steps. The lists below are the steps at which
    # transitions begin and end.
    assert parts.observation[:, 1].tolist() == [0, 0, 1, 1, 2, 2, 3, 4, 3, 4]
    assert parts.next_observation[:, 1].tolist() == [2, 2, 3, 3, 4, 4, 5, 5, 5, 5]
    assert parts.reward.tolist() == [1.5] * 7 + [1.0, 1.5, 1.0]
    assert parts.discount.tolist() == [0.25] * 6 + [0.0] * 4
    np.testing.assert_array_equal(parts.observation[:, 0], parts.next_observation[:, 0])
    order = [0, 1, 2, 3, 4, 5, 6, 8, 7, 9]
    np.testing.assert_array_equal(parts.observation, steps.observation[order])
    np.testing.assert_array_equal(parts.action, steps.action[order])


def test_the_accumulator_is_restored_in_the_middle_of_an_episode() -> None:
    (buffer, collector), (other_buffer, other) = (collector_of(TwoSteps()) for _ in range(2))
    collect(collector, 3)
    state = unflatten_state(
        *flatten_state({"collector": collector.state(), "buffer": buffer.state()})
    )
    assert [index for index, _ in state["collector"]["accumulator"]["kept"]] == [0, 1]
    other_buffer.restore_rows(0, buffer.rows(0, buffer.added))
    other_buffer.restore(state["buffer"])
    other.restore(state["collector"])
    for each in (collector, other):
        collect(each, 7)
    assert buffer.added == other_buffer.added == 2 * 2 * LENGTH
    np.testing.assert_array_equal(buffer.rows(0, 20), other_buffer.rows(0, 20))


def test_pending_steps_of_lost_episodes_are_dropped() -> None:
    (_, collector), (buffer, other) = (collector_of(TwoSteps(), noisy=True) for _ in range(2))
    collect(collector, 3)
    other.restore(collector.state())
    assert other.environments.lost.all()
    collect(other, 1)
    assert buffer.added == 0
    collect(other, 1)
    assert stored(buffer).reward.tolist() == [1.5, 1.5]


def test_the_one_step_accumulator_neither_saves_nor_accepts_a_state() -> None:
    _, collector = collector_of(OneStep())
    _, other = collector_of(TwoSteps())
    collect(collector, 2)
    collect(other, 2)
    assert collector.state().keys() == {"steps", "behavior", "environments"}
    with pytest.raises(ValueError, match="the state of OneStep must be"):
        collector.restore(other.state())
    with pytest.raises(KeyError):
        other.restore(collector.state())


def test_the_one_step_accumulator_returns_steps_unchanged() -> None:
    steps, ended = Transition(*(np.ones(2) for _ in range(5))), np.array([True, False])
    again, still = OneStep().accumulate(steps, ended)
    assert again is steps
    assert still is ended


def test_episode_buffers_require_a_one_to_one_accumulator() -> None:
    buffer, collector = collector_of(OneStep(), memory="gru", sequence_length=4)
    collect(collector, 3)
    assert buffer.added == 2 * 4
    with pytest.raises(ValueError, match="TwoSteps is not one_to_one: use this accumulator"):
        collector_of(TwoSteps(), memory="gru", sequence_length=4)
