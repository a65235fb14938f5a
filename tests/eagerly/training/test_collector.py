"""The collector in a custom training loop."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from eagerly import TD3, Collector, TD3Config
from eagerly.buffers import replay_buffer
from eagerly.errors import RunError
from eagerly.state import flatten_state, unflatten_state
from tests.small_runs import TrainRun
from tests.toys import Counting


def collector_of(env: str, seed: int = 0, **settings: Any) -> tuple[TD3, Any, Collector]:
    made = gymnasium.make(env)
    config = TD3Config(hidden_sizes=(8,), mode="eager", **settings)
    agent = TD3(made.observation_space, made.action_space, config, seed=seed)
    buffer = replay_buffer(agent.layout, 1000, seed=seed)
    return agent, buffer, Collector.make(agent, env, buffer, num_envs=2, seed=seed, warmup_steps=20)


def test_a_custom_loop_collects_the_same_rows_as_the_trainer(train: TrainRun) -> None:
    settings = {"env": "Pendulum-v1", "num_envs": 2, "exploration": "ornstein_uhlenbeck"}
    trainer = train(**settings, warmup_steps=20, steps=60, replay_ratio=0.01, discount=0.9)
    agent = TD3(trainer.observations.space, trainer.actions.space, trainer.agent.config, seed=0)
    buffer = replay_buffer(agent.layout, 1000, seed=0)
    collector = Collector.make(agent, "Pendulum-v1", buffer, num_envs=2, seed=0, warmup_steps=20)
    while collector.steps < 60:
        collector.collect()
    np.testing.assert_array_equal(buffer.rows(0, 60), trainer.buffer.rows(0, 60))
    collector.close()


@pytest.mark.parametrize("settings", [{}, {"memory": "gru", "sequence_length": 4}])
def test_the_collector_resumes_exactly(settings: dict[str, Any]) -> None:
    settings = settings | {"exploration": "ornstein_uhlenbeck"}
    both = [collector_of("Long-v0", **settings) for _ in range(2)]
    (_, buffer, collector), (_, other_buffer, other) = both
    for _ in range(30):
        collector.collect()
    document, arrays = flatten_state({"c": collector.state(), "b": buffer.state()})
    state = unflatten_state(document, arrays)
    other_buffer.restore_rows(0, buffer.rows(0, buffer.added))
    other_buffer.restore(state["b"])
    other.restore(state["c"])
    assert other.steps == 60
    for _ in range(30):
        collector.collect()
        other.collect()
    assert buffer.added == other_buffer.added > 100
    np.testing.assert_array_equal(
        buffer.rows(0, buffer.added), other_buffer.rows(0, other_buffer.added)
    )


def collector_with(
    lengths: list[int], warmup_steps: int, **more: Any
) -> tuple[Any, Any, Collector]:
    """Creates a collector with one environment per episode length and no exploration noise."""
    config = TD3Config(hidden_sizes=(8,), mode="eager", exploration_noise=0.0)
    env, each = Counting(), iter(lengths)
    agent = TD3(env.observation_space, env.action_space, config)
    buffer = agent.replay_buffer(1000)
    more |= {"num_envs": len(lengths), "warmup_steps": warmup_steps}
    return agent, buffer, Collector.make(agent, lambda: Counting(next(each)), buffer, **more)


def is_random(agent: Any, rows: np.ndarray) -> list[bool]:
    """Returns for each row whether its action differs from the policy's."""
    observation, action, *_ = agent.layout.unpack(rows)
    return (np.abs(agent.act(observation) - action) > 1e-6).any(axis=1).tolist()


def test_steps_after_the_warm_up_require_updates_even_within_a_round() -> None:
    agent, buffer, collector = collector_with([9] * 4, 5)
    owing = []
    for _ in range(3):
        collector.collect()
        owing.append(collector.steps_owing_updates)
    assert owing == [0, 3, 4]
    assert is_random(agent, buffer.rows(0, 12)) == [True] * 8 + [False] * 4
    assert "warming_up" not in collector.state()


@pytest.mark.parametrize(
    ("lengths", "warmup_steps", "random"),
    [
        ([3], 4, 6),
        ([3], 6, 6),
        ([3], 7, 9),
        ([5, 7, 11], 16, 21),
        ([5, 7, 11], 15, 15),
        ([3], 0, 0),
    ],
)
def test_a_warm_up_may_end_with_an_episode(
    lengths: list[int], warmup_steps: int, random: int
) -> None:
    agent, buffer, collector = collector_with(lengths, warmup_steps, warmup_ends_with_episode=True)
    count, owing = len(lengths), []
    while collector.steps < random + 3 * count:
        collector.collect()
        owing.append(collector.steps_owing_updates)
    assert owing == [0] * (random // count) + [count] * 3
    expected = [True] * random + [False] * 3 * count
    assert is_random(agent, buffer.rows(0, collector.steps)) == expected


# The extended warm-up ends after 7 rounds.
@pytest.mark.parametrize("rounds", [6, 7])
def test_an_interrupted_warm_up_continues_to_the_end_of_its_episode(rounds: int) -> None:
    made = [collector_with([5, 7, 11], 16, warmup_ends_with_episode=True) for _ in range(2)]
    (agent, buffer, collector), (_, other_buffer, other) = made
    for _ in range(rounds):
        collector.collect()
    document, arrays = flatten_state({"c": collector.state(), "b": buffer.state()})
    state = unflatten_state(document, arrays)
    assert state["c"]["warming_up"] == (rounds == 6)
    other_buffer.restore_rows(0, buffer.rows(0, buffer.added))
    other_buffer.restore(state["b"])
    other.restore(state["c"])
    for _ in range(4):
        collector.collect()
        other.collect()
        assert (
            other.steps_owing_updates
            == collector.steps_owing_updates
            == (3 if collector.steps > 21 else 0)
        )
    rows = buffer.rows(0, buffer.added)
    np.testing.assert_array_equal(other_buffer.rows(0, buffer.added), rows)
    assert is_random(agent, rows) == [True] * 21 + [False] * 3 * (rounds - 3)


def test_an_environment_may_be_a_factory_and_unknown_ids_are_rejected() -> None:
    agent, buffer, _ = collector_of("Long-v0")
    collector = Collector.make(agent, Counting, buffer, env_kwargs={"length": 5})
    for _ in range(5):
        step = collector.collect()
    assert step.terminated.tolist() == [[True]]
    with pytest.raises(RunError, match="unknown environment 'Lnog-v0'"):
        Collector.make(agent, "Lnog-v0", buffer)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"num_envs": 0}, "num_envs must be at least 1; got 0"),
        ({"num_envs": 2.0}, r"num_envs must be an integer; got 2\.0"),
        ({"group_size": -1}, "group_size must be at least 0; got -1"),
        ({"seed": None}, "seed must be an integer; got None"),
        ({"rollout_steps": 0}, "rollout_steps must be at least 1; got 0"),
        ({"policy_lag": 2}, "policy_lag must be 0 or 1; got 2"),
        ({"env": "Pendulum-v1"}, r"shapes \(\(2,\), \(2,\)\) of the agent's; got \(\(3,\), "),
    ],
)
def test_invalid_arguments_are_rejected(wrong: dict[str, Any], message: str) -> None:
    agent, buffer, _ = collector_of("Long-v0")
    with pytest.raises(ValueError, match=message):
        Collector.make(agent, **{"env": "Long-v0", "buffer": buffer} | wrong)


def test_states_are_split_into_json_and_arrays() -> None:
    state = {"a": np.arange(3), "b": [1, {"c": np.zeros((2, 0))}, None], "d": {}, "e": (True, "x")}
    document, arrays = flatten_state(state, "part")
    assert document == {
        "a": {"__array__": "part.a"},
        "b": [1, {"c": {"__array__": "part.b.1.c"}}, None],
        "d": {},
        "e": [True, "x"],
    }
    again = unflatten_state(document, arrays)
    np.testing.assert_array_equal(again["a"], [0, 1, 2])
    assert again["b"][1]["c"].shape == (2, 0)
    with pytest.raises(KeyError):
        unflatten_state(document, {})


@pytest.mark.parametrize("env", ["Reach-v0", "ReachScaled-v0"])
def test_a_custom_loop_relabels_like_the_trainer(train: TrainRun, env: str) -> None:
    settings = {"hindsight": "future", "n_step": 2, "discount": 0.9, "num_envs": 2, "env": env}
    trainer = train(**settings, warmup_steps=20, steps=60, replay_ratio=0.01)
    agent = TD3(trainer.observations.space, trainer.actions.space, trainer.agent.config, seed=0)
    buffer = agent.replay_buffer(1000)
    collector = Collector.make(agent, env, buffer, num_envs=2, seed=0, warmup_steps=20)
    while collector.steps < 60:
        collector.collect()
    assert buffer.added == trainer.buffer.added > 3 * 60
    np.testing.assert_array_equal(
        buffer.rows(0, buffer.added), trainer.buffer.rows(0, buffer.added)
    )
    with pytest.raises(
        ValueError, match=r"hindsight replay requires an environment .* use Collector.make"
    ):
        Collector(agent, collector.environments, buffer)
    collector.close()


def test_the_newest_transitions_are_kept_if_the_buffer_is_too_small() -> None:
    made = gymnasium.make("Reach-v0")
    config = TD3Config(hidden_sizes=(8,), mode="eager", hindsight="future", n_step=2)
    agent = TD3(made.observation_space, made.action_space, config)
    found = []
    for capacity in (20, 10_000):
        buffer = agent.replay_buffer(capacity)
        collector = Collector.make(agent, "Reach-v0", buffer, warmup_steps=1000)
        for _ in range(40):
            collector.collect()
        found.append(buffer.rows(buffer.added - 20, buffer.added))
        collector.close()
    np.testing.assert_array_equal(*found)


def test_the_strategy_of_hindsight_comes_from_the_settings() -> None:
    found = []
    for strategy in ("final", "future", "episode"):
        goals = {} if strategy == "final" else {"hindsight_goals": 1}
        settings = {"hindsight": strategy, "discount": 0.9, **goals}
        agent, buffer, collector = collector_of("Reach-v0", **settings)
        for _ in range(40):
            collector.collect()
        found.append(buffer.rows(0, buffer.added))
        discounts = agent.layout.unpack(found[-1]).discount
        assert np.isin(discounts, np.float32([0.0, 0.9])).all()
        collector.close()
    assert len({rows.shape for rows in found}) == 1
    assert len({rows.tobytes() for rows in found}) == 3


def test_goals_of_hindsight_are_drawn_with_the_seed_of_the_run() -> None:
    generators = []
    for seed in (0, 0, 1):
        _, _, collector = collector_of("Reach-v0", seed, hindsight="future")
        collector.collect()
        generators.append(collector.state()["accumulator"]["generator"])
        collector.close()
    assert generators[0] == generators[1] != generators[2]


@pytest.mark.parametrize("settings", [{"n_step": 4}, {"hindsight": "final", "n_step": 4}])
def test_a_restored_state_with_other_shapes_is_rejected(settings: dict[str, Any]) -> None:
    _, _, collector = collector_of("Reach-v0", **settings)
    for _ in range(3):
        collector.collect()
    state = collector.state()
    accumulated = state["accumulator"]
    waiting = accumulated.get("inside", accumulated)
    waiting["observation"] = waiting["observation"][..., :3]
    collector.restore(state)
    with pytest.raises(RunError, match=r"observation must have shape \(3,\), .*; got \(6,\)"):
        collector.collect()
    if "hindsight" in settings:
        accumulated["episodes"] = accumulated["episodes"][:1]
        with pytest.raises(ValueError, match=r"began must have shape \[1\]"):
            collector.restore(state)
    collector.close()


class Limited(gymnasium.Wrapper):  # type: ignore[type-arg]
    """Executes a torque of at most 0.5 from the second step on, like a safety layer."""

    def __init__(self, reports: Any = None) -> None:
        super().__init__(gymnasium.make("Pendulum-v1"))
        self.steps, self.reports = 0 if reports is None else 1, reports

    def step(self, action: Any) -> Any:
        self.steps += 1
        limited = np.clip(action, -0.5, 0.5)
        if self.steps == 1:
            return self.env.step(action)
        *found, info = self.env.step(limited)
        info["executed_action"] = limited if self.reports is None else self.reports
        return (*found, info)


@pytest.mark.parametrize(
    ("settings", "memory"),
    [
        ({}, {}),
        ({"num_envs": 3, "group_size": 1, "rollout_steps": 2}, {}),
        ({}, {"memory": "gru", "sequence_length": 4}),
    ],
    ids=["one", "groups", "memory"],
)
def test_an_action_that_the_environment_replaced_is_stored(
    settings: dict[str, Any], memory: dict[str, Any]
) -> None:
    rollout_steps = settings.get("rollout_steps", 1)
    agent = TD3(gymnasium.make("Pendulum-v1"), hidden_sizes=(8,), mode="eager", **memory)
    buffer = agent.replay_buffer(100)
    collector = Collector.make(agent, Limited, buffer, warmup_steps=100, seed=0, **settings)
    rollouts = [collector.collect() for _ in range(10 // rollout_steps)]
    count = settings.get("num_envs", 1)
    rows = buffer.rows(0, buffer.added)
    # With memory, each row contains the action before it.
    actions = agent.layout.split(rows).action[1:] if memory else agent.layout.unpack(rows).action
    assert np.abs(actions[:count]).max() > 0.25  # of a torque of 2
    assert np.abs(actions[count:]).max() == pytest.approx(0.25)
    executed = np.concatenate([rollout.executed for rollout in rollouts]).reshape(-1, 1)
    expected = (executed / 2).clip(-0.25, 0.25)[count : len(actions)]
    np.testing.assert_allclose(actions[count:], expected, 1e-6)
    if memory:  # the policy receives the executed action as well
        acted = collector.state()["behavior"]["episodes"]["actions"]
        np.testing.assert_array_equal(acted, actions[-1:])


@pytest.mark.parametrize(
    ("reports", "message"),
    [
        (np.array([3.0]), "environment 0: .* must be an action: actions must be in .* got 3"),
        (np.array([np.nan]), "must be an action"),
        (np.zeros(2), "must be an action: .*shape"),
        ({"a": 1}, r"environment 0: info\['executed_action'\] must be .*; got dict"),
    ],
)
def test_an_invalid_executed_action_is_an_error(reports: Any, message: str) -> None:
    agent = TD3(gymnasium.make("Pendulum-v1"), hidden_sizes=(8,), mode="eager")
    collector = Collector.make(agent, lambda: Limited(reports), agent.replay_buffer(9))
    with pytest.raises(RunError, match=message):
        collector.collect()
    with pytest.raises(RunError, match="the last round failed: create a new Trainer"):
        collector.collect()
