"""Runs with logged data: next to collected data, and offline."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from eagerly import TD3, TD7, open_run
from eagerly.agents.agent import Agent
from eagerly.buffers import MixedBuffer
from eagerly.errors import RunError
from eagerly.storage.digests import digests
from eagerly.training.logged_data import describe, make_buffer
from tests.small_runs import TrainRun

STEPS = 200  # of an episode


def log(path: Path, episodes: int = 2, **changed: Any) -> str:
    """Writes episodes of Pendulum-v1 with random actions."""
    env, random = gymnasium.make("Pendulum-v1"), np.random.default_rng(0)
    rows: dict[str, list[Any]] = {name: [] for name in ("observations", "actions", "rewards")}
    for episode in range(episodes):
        observation, _ = env.reset(seed=episode)
        for _ in range(STEPS):
            action = random.uniform(-2, 2, 1).astype(np.float32)
            rows["observations"].append(observation)
            observation, reward, *_ = env.step(action)
            rows["actions"].append(action)
            rows["rewards"].append(reward)
    env.close()
    ends = np.arange(1, episodes * STEPS + 1) % STEPS == 0
    arrays = {**rows, "terminals": np.zeros_like(ends), "timeouts": ends, **changed}
    np.savez(path, **{name: np.asarray(values) for name, values in arrays.items()})
    return str(path)


@pytest.mark.parametrize(
    ("settings", "rows"),
    [
        ({"normalize_observations": True, "data_share": 0.25, "n_step": 3, "num_envs": 2}, 398),
        ({"offline": True, "n_step": 3}, 398),
        pytest.param(
            {"memory": "gru", "memory_units": 4, "sequence_length": 4, "sequences_per_update": 4},
            400,
            marks=pytest.mark.long,
        ),
    ],
    ids=["mixed", "offline", "memory"],
)
def test_a_run_continues_exactly_without_the_file(
    train: TrainRun, tmp_path: Path, settings: dict[str, Any], rows: int
) -> None:
    settings = {"data": log(tmp_path / "data.npz"), **settings}
    settings |= {"replay_capacity": 120, "evaluate_every_steps": 100}
    straight = train("straight", steps=300, **settings)
    buffer = straight.buffer
    data = buffer.data if isinstance(buffer, MixedBuffer) else buffer
    assert data.added == len(data) == rows
    if "offline" in settings:
        assert straight.updates == 3  # one per 100 steps
    if "data_share" in settings:
        assert straight.buffer._of_data == 4  # a quarter of a batch
    assert (
        f"data {tmp_path / 'data.npz'}: 398 transitions of 400 steps in 2 episodes"
        in (straight.lines[0])
    )
    train("stopped", steps=150, **settings)
    (tmp_path / "data.npz").unlink()
    resumed = train("stopped", steps=300)
    assert digests(resumed.run.path) == digests(straight.run.path)
    document = json.loads((tmp_path / "stopped" / "config.json").read_text())
    (found,) = document["data"]
    assert (found["transitions"], found["episodes"], len(found["sha256"])) == (398, 2, 64)


def test_the_buffer_contains_the_logged_transitions(train: TrainRun, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    observations, following = random.uniform(-1, 1, (2, 6, 3)).astype(np.float32)
    actions, rewards = random.uniform(-2, 2, (6, 1)).astype(np.float32), np.arange(6.0)
    ends = np.arange(6) == np.array([[2], [5]])  # of a terminated and of a truncated episode
    np.savez(
        tmp_path / "data.npz",
        observations=observations,
        actions=actions,
        rewards=rewards,
        next_observations=following,
        terminals=ends[0],
        timeouts=ends[1],
    )
    settings = {"data": str(tmp_path / "data.npz"), "offline": True, "n_step": 1, "steps": 1}
    trainer = train(**settings, discount=0.9, normalize_observations=True)
    buffer, moments = trainer.buffer, trainer.agent.normalization.moments
    assert moments.count == 6
    np.testing.assert_allclose(moments.mean, observations.mean(axis=0), 1e-5)
    found = buffer.layout.unpack(buffer.rows(0, buffer.added))
    discounts = [0.9, 0.9, 0.0, 0.9, 0.9, 0.9]
    for part, expected in zip(
        found, (observations, actions / 2, rewards, discounts, following), strict=True
    ):
        np.testing.assert_allclose(part, expected, 1e-6)


def test_data_that_does_not_fit_or_has_changed_is_rejected(train: TrainRun, tmp_path: Path) -> None:
    data = log(tmp_path / "data.npz", episodes=1)
    wide = log(tmp_path / "wide.npz", episodes=1, actions=np.full((STEPS, 1), 3.0))
    apart = log(tmp_path / "apart.npz", episodes=1, next_observations=np.zeros((STEPS, 3)))
    for settings, message in (
        ({"data": str(tmp_path / "none.npz")}, "got no such file"),
        ({"data": f"{data},{wide}"}, r"wide\.npz.* 3"),
        ({"offline": True}, "offline training needs logged data: add --data"),
        ({"data": data, "offline": True, "num_envs": 2}, "num_envs must be 1 with offline"),
        ({"data": data, "offline": True}, "warmup_steps has an effect only without --offline"),
        ({"data_share": 0.1}, "data_share has an effect only with --data; got --data none"),
    ):
        with pytest.raises(RunError, match=message):
            train(**settings)
    assert not (tmp_path / "run").exists()
    with pytest.raises(RunError, match=r"apart\.npz cannot be used: the observation of "):
        train(data=apart, memory="gru", sequence_length=4)


@pytest.mark.parametrize(
    ("agent", "settings"), [(TD7, {}), (TD3, {"hindsight": "final"}), (TD3, {})]
)
def test_data_without_the_observations_after_terminations_are_rejected_if_these_are_used(
    tmp_path: Path, agent: type[Agent], settings: dict[str, Any]
) -> None:
    ends = np.arange(STEPS) == STEPS - 1
    changed = {"terminals": ends, "timeouts": np.zeros_like(ends)}
    complete = log(tmp_path / "c.npz", 1, **changed, next_observations=np.zeros((STEPS, 3)))
    env = gymnasium.make("Pendulum-v1")
    made = agent(env, mode="eager", hidden_sizes=(8,))
    made.config = replace(made.config, **settings)

    def described(data: str) -> None:
        describe(open_run(None, agent.__name__.lower(), {"env": "Pendulum-v1", "data": data}), made)

    described(complete)
    described(log(tmp_path / "cut.npz", 1))  # has no termination
    refusal = pytest.raises(RunError, match=r"data\.npz must contain next_observations, because")
    with refusal if agent is TD7 or settings else nullcontext():
        described(log(tmp_path / "data.npz", 1, **changed))


def test_data_of_an_untrusted_run_without_checkpoints_are_not_read(
    train: TrainRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    train(steps=20, data=log(tmp_path / "data.npz", 1))
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    shutil.rmtree(tmp_path / "state")
    with pytest.raises(RunError, match=r"is not trusted .* would read logged data from"):
        train(steps=30)


OFFLINE = {"env": "Pendulum-v1", "data": "short.npz", "offline": True}


def test_offline_runs_have_no_policy_checkpoints() -> None:
    assert not open_run(None, "td7", OFFLINE).config.policy_checkpoints


def test_a_buffer_with_memory_has_room_for_few_steps() -> None:
    run = open_run(None, "td3", OFFLINE)
    run.data = [{"transitions": 2, "episodes": 1}]
    agent = TD3(gymnasium.make("Pendulum-v1"), memory="gru", mode="eager")
    assert make_buffer(run, agent).capacity == agent.layout.least_rows(1) > 3
