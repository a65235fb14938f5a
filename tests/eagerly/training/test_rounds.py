"""Environment groups, and rounds of several steps with one version of the policy."""

from __future__ import annotations

import time
from concurrent.futures import wait
from typing import Any

import gymnasium
import numpy as np
import pytest

from eagerly.agents.td3 import TD3
from eagerly.agents.td3_config import TD3Config
from eagerly.errors import RunError
from eagerly.training.callbacks import Callback
from eagerly.training.collector import Collector
from tests.eagerly.training.test_failing_surroundings import faulty
from tests.eagerly.training.test_td7 import TD7, with_diary
from tests.eagerly.training.test_trainer import _same
from tests.small_runs import TrainRun


def collector_of(groups: int = 0, steps: int = 1, policy_lag: int = 0, **settings: Any) -> Any:
    """Creates a collector of four environments. Its 10 warm-up steps end within a round."""
    env = settings.pop("env", "Long-v0")
    made = gymnasium.make(env)
    config = TD3Config(hidden_sizes=(8,), mode="eager", **settings)
    agent = TD3(made.observation_space, made.action_space, config)
    buffer = agent.replay_buffer(1000)
    more = {"group_size": groups, "rollout_steps": steps, "policy_lag": policy_lag}
    collector = Collector.make(agent, env, buffer, num_envs=4, warmup_steps=10, **more)
    return agent, buffer, collector


@pytest.mark.parametrize("noise", ["gaussian", "ornstein_uhlenbeck"])
@pytest.mark.parametrize(("groups", "steps"), [(0, 3), (1, 1), (3, 2), (2, 6)])
def test_groups_and_rounds_collect_the_same_rows_as_joint_single_steps(
    noise: str, groups: int, steps: int
) -> None:
    settings: dict[str, Any] = {"exploration": noise, "normalize_observations": True}
    agent, one, alone = collector_of(**settings)
    another, other, collector = collector_of(groups, steps, **settings)
    owing = []
    while alone.steps < 4 * 12:
        alone.collect()
        owing.append(alone.steps_owing_updates)
    found = []
    while collector.steps < 4 * 12:
        collector.collect()
        found.append(collector.steps_owing_updates)
    assert owing == [0, 0, 2, *[4] * 9]
    assert found == [sum(owing[first : first + steps]) for first in range(0, 12, steps)]
    # The last bits of an action can depend on the number of rows in the matrix product.
    rows = one.rows(0, one.added)
    np.testing.assert_allclose(other.rows(0, other.added), rows, rtol=1e-5, atol=1e-6)
    random = np.abs(rows - other.rows(0, other.added))[: 4 * 3].max()
    assert random == 0
    assert agent.normalization.moments.count == 4 * 12
    for name, value in agent.normalization.moments.state().items():
        np.testing.assert_allclose(another.normalization.moments.state()[name], value, rtol=1e-5)


@pytest.mark.parametrize("memory", ["none", "gru"], ids=["groups", "together"])
def test_noise_and_discounted_returns_restart_in_lost_episodes(
    memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"exploration": "ornstein_uhlenbeck", "normalize_rewards": True}
    settings["memory"], kept = memory, [True, False, True, True]
    *_, collector = collector_of(int(memory == "none"), **settings)
    for _ in range(5):
        collector.collect()
    state = collector.state()
    observations = state["environments"]["observations"].copy()
    observations[1] += 1.0  # environment 1 cannot return to this observation
    state["environments"]["observations"] = observations
    *_, other = collector_of(int(memory == "none"), **settings)
    other.restore(state)
    behavior = other.state()["behavior"]
    assert behavior["exploration"]["process"].any(axis=1).tolist() == kept
    assert behavior["returns"]["returns"].astype(bool).tolist() == kept

    name = "step" if memory == "gru" else "rollout"
    original = getattr(collector.environments, name)

    def losing(*given: Any) -> Any:
        found = original(*given)
        collector.environments.lost = ~np.array(kept)
        return found

    monkeypatch.setattr(collector.environments, name, losing)
    rewards = collector.collect().rewards[0]
    behavior = collector.state()["behavior"]
    if memory == "none":  # the lost group has restarted its noise before this step
        assert (behavior["returns"]["returns"] == rewards).tolist() == [not each for each in kept]
    else:
        assert behavior["exploration"]["process"].any(axis=1).tolist() == kept
        assert behavior["returns"]["returns"].astype(bool).tolist() == kept


def test_the_policy_is_called_per_group_and_fixed_within_a_round() -> None:
    agent, buffer, collector = collector_of(3, 5)
    collector.collect()
    asked = []
    given = agent.rollout_policy()

    def policy(observations: np.ndarray) -> np.ndarray:
        asked.append(len(observations))
        agent.train(buffer, 1)  # must not change the policy of a round in progress
        found: np.ndarray = given(observations)
        return found

    agent.rollout_policy = lambda: policy
    agent.policy.refresh()  # makes the collector call `rollout_policy` again
    collector.collect()
    assert sorted(asked) == [1] * 5 + [3] * 5
    observation, action, *_ = agent.layout.unpack(buffer.rows(20, 40))
    assert np.abs(action - given(observation)).max() < 5 * 0.1


@pytest.mark.parametrize("lag", [0, 1])
def test_policy_lag_selects_the_policy_before_or_after_the_updates(lag: int) -> None:
    agent, buffer, collector = collector_of(
        2, 5, policy_lag=lag, exploration_noise=0.0, actor_learning_rate=0.1, env="Pendulum-v1"
    )
    collector.collect()
    policies = []
    for _ in range(3):
        policies.append(agent.rollout_policy())
        agent.train(buffer, 2)
        collector.collect()
    policies.append(agent.rollout_policy())
    for number in range(1, 4):
        rows = buffer.rows(20 * number, 20 * (number + 1))
        observation, action, *_ = agent.layout.unpack(rows)
        close = [np.abs(policy(observation) - action).max() < 1e-5 for policy in policies]
        assert close == [each == number - lag for each in range(4)]
    collector.close()


def test_environments_that_never_wait_collect_the_same_rows_ahead_of_a_slow_trainer() -> None:
    _, expected, alone = collector_of(steps=3)
    _, found, collector = collector_of(steps=3, policy_lag=1)
    queue = collector.environments._queue
    queue._never_waits = True
    collector.collect()
    deadline = time.monotonic() + 10.0
    while len(queue._begun) < 10 and time.monotonic() < deadline:
        time.sleep(0.01)
    wait([queue._begun[-1][0]], 10.0)
    assert [each.future.done() for each in queue._begun] == [True] * 10
    for _ in range(14):
        collector.collect()
    for _ in range(15):
        alone.collect()
    assert collector.steps == alone.steps == 180
    assert found.rows(0, 180).tobytes() == expected.rows(0, 180).tobytes()
    collector.close()


def test_a_recurrent_policy_acts_for_all_groups_together() -> None:
    settings = {"memory": "gru", "memory_units": 8, "exploration_noise": 0.01}
    buffers = []
    for groups, steps in ((0, 1), (1, 4)):
        agent, buffer, collector = collector_of(groups, steps, **settings)
        assert agent.rollout_policy() is None
        while collector.steps < 4 * 12:
            collector.collect()
        buffers.append(buffer.rows(0, buffer.added))
    np.testing.assert_array_equal(*buffers)


class Rounds(Callback):
    """Records the steps and updates at each update, and the steps at each rollout."""

    def __init__(self) -> None:
        self.made: list[tuple[int, int]] = []
        self.told: list[int] = []

    def on_update(self, trainer: Any, metrics: Any) -> None:
        self.made.append((trainer.steps, trainer.updates))

    def on_rollout(self, trainer: Any, rollout: Any) -> None:
        self.told.append(trainer.steps)


ROUNDS: dict[str, Any] = {"num_envs": 3, "group_size": 2, "rollout_steps": 4}


def test_updates_are_made_after_a_round_for_all_of_its_steps(
    train: TrainRun, tmp_path: Any
) -> None:
    train(**ROUNDS, warmup_steps=20, steps=20, replay_ratio=0.25, evaluate_every_steps=12)
    heard = Rounds()
    with_diary(tmp_path / "run", heard, steps=60)
    # The last 4 of the first 24 steps, after the warm-up, required one update, which the first run
    # made. Each later round of 12 steps requires 3.
    assert heard.made == [
        (24 + 12 * n, 1 + 3 * (n - 1) + k) for n in (1, 2, 3) for k in range(1, 4)
    ]
    assert heard.told == [36, 48, 60]


class StopAt(Callback):
    """Stops after a number of updates."""

    def __init__(self, updates: int) -> None:
        self._updates = updates

    def on_update(self, trainer: Any, metrics: Any) -> None:
        if trainer.updates == self._updates:
            trainer.stop("enough")


def test_a_round_in_flight_is_collected_again_after_a_stop_with_pending_updates(
    train: TrainRun, tmp_path: Any
) -> None:
    settings = {**ROUNDS, "policy_lag": 1, "warmup_steps": 20, "replay_ratio": 0.25}
    settings |= {"evaluate_every_steps": 60, "exploration": "ornstein_uhlenbeck"}
    straight = train("straight", **settings, steps=72)
    train("parts", **settings, steps=30)
    stopped = with_diary(tmp_path / "parts", StopAt(5), steps=72)
    assert (stopped.updates, stopped.in_round) == (5, True)
    _same(train("parts"), straight)


def test_an_environment_failure_in_the_background_thread_is_reported(train: TrainRun) -> None:
    settings = faulty("raises", policy_lag=1, rollout_steps=7)
    with pytest.raises(
        RunError,
        match=r"stopped after step 140: environment 0, step 5 .*failed:\n(.*\n)*.*motor is on fire",
    ):
        train(**settings)


def test_close_waits_for_a_step_but_not_for_a_round() -> None:
    agent, _, collector = collector_of(2, 10**8, policy_lag=1)
    collector.begin()
    collector._begin_round(agent.rollout_policy())
    collector.close()
    with pytest.raises(RunError, match="rollout aborted"):
        collector.environments._queue._begun[0][0].result()


def test_policy_lag_requires_a_policy_that_checkpoints_can_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TD3, "rollout_policy", lambda agent: lambda rows: rows)
    with pytest.raises(ValueError, match="--policy-lag must be 0 for this TD3"):
        collector_of(2, 4, policy_lag=1)


@pytest.mark.long
def test_td7_assesses_episodes_started_by_a_policy_and_trains_at_the_end_of_a_round(
    train: TrainRun, tmp_path: Any
) -> None:
    settings = TD7 | {"rollout_steps": 4, "steps": 16}
    train(**settings)
    heard = Rounds()
    trainer = with_diary(tmp_path / "run", heard, steps=80)
    # Episodes have 10 steps and rounds have 4. The warm-up of 15 steps is extended to step 20, at
    # which an episode and a round end. The episode of steps 21 to 30 is assessed at step 32,
    # followed by updates. The episode of steps 31 to 40 is not assessed, because the old policy
    # began it. The episode of steps 41 to 50 is assessed at step 52.
    assert sorted({steps for steps, _ in heard.made}) == [32, 52, 72]
    assert trainer.budget.kept > 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"num_envs": 4, "rollout_steps": 50, "evaluate_every_steps": 150},
            r"rounds of 200 steps, but evaluate_every_steps is 150: reduce rollout_steps, or",
        ),
        (
            {"policy_lag": 1, "memory": "gru"},
            "--policy-lag must be 0 for this TD3: its policy is recurrent or does not act in NumPy",
        ),
        (
            {"policy_lag": 1, "agent": "td7"},
            "policy_lag must be 0 with policy_checkpoints, because .*: add --no-policy-checkpoints",
        ),
        ({"group_size": 2}, r"group_size must be at most num_envs \(1\); got 2"),
    ],
)
def test_incompatible_settings_are_rejected(
    train: TrainRun, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(RunError, match=message):
        train(**settings)
