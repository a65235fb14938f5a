"""Policies loaded from a run: their units, weights and recorded evaluations."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eagerly import load_policy
from eagerly.environments.factory import environment_maker
from eagerly.errors import RunError
from eagerly.networks.models import assign_weights
from eagerly.spaces import Actions
from eagerly.training.evaluation import evaluation_seeds, run_episodes
from tests import toys
from tests.helpers import edit_sealed, spaces
from tests.small_runs import TrainRun, train_in

toys.register()


def evaluations(path: Path) -> dict[int, float]:
    with (path / "evaluations.csv").open() as file:
        return {int(row["steps"]): float(row["return_mean"]) for row in csv.DictReader(file)}


# This program prints the peak memory of its process in kilobytes, as measured by the kernel.
PEAK = """
import sys, eagerly
policy = eagerly.load_policy(sys.argv[1])
policy(policy.observation_space.sample())
print([line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")][0])
"""
MOST_KILOBYTES = 120 * 1024


def test_loading_and_acting_need_little_memory(train: TrainRun, tmp_path: Path) -> None:
    train(env="HalfCheetah-v5", hidden_sizes=(256, 256), steps=120)
    command = [sys.executable, "-c", PEAK, str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 10_000 < int(done.stdout) < MOST_KILOBYTES


PROGRAM = """
import json, sys
import gymnasium
import eagerly
path, env, episodes = sys.argv[1:]
policies = {which: eagerly.load_policy(path, which) for which in ("best", "latest")}
unneeded = ("tensorflow", "keras", "scipy", "mujoco", "matplotlib")
loaded = [name for name in sys.modules if name in unneeded]
from eagerly.training.evaluation import evaluation_seeds
env = gymnasium.make(env)

def played(policy):
    returns = []
    for seed in evaluation_seeds(0, int(episodes)):
        observation, total, ended = env.reset(seed=seed)[0], 0.0, False
        while not ended:
            observation, reward, terminated, truncated, _ = env.step(policy(observation))
            total, ended = total + float(reward), terminated or truncated
        returns.append(total)
    return sum(returns) / len(returns)

print(json.dumps({which: [played(p), p.steps, loaded] for which, p in policies.items()}))
"""


@pytest.mark.parametrize(
    ("agent", "env", "settings"),
    [
        ("td3", "InvertedPendulum-v5", {"layer_norm": True}),
        pytest.param("ddpg", "Pendulum-v1", {}, marks=pytest.mark.long),
    ],
)
def test_a_fresh_process_reproduces_the_recorded_evaluations(
    train: TrainRun, tmp_path: Path, agent: str, env: str, settings: dict
) -> None:
    wide: dict[str, Any] = {
        "hidden_sizes": (256, 256),
        "evaluation_episodes": 2,
        "evaluate_every_steps": 80,
    }
    wide |= {"steps": 160, "warmup_steps": 40, "replay_ratio": 0.04}
    trainer = train(agent=agent, env=env, **wide, **settings)
    recorded = evaluations(tmp_path / "run")
    best, last = max(recorded, key=lambda step: recorded[step]), max(recorded)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "run"), env, "2"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert last == trainer.steps
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "best": [recorded[best], best, []],
        "latest": [recorded[last], last, []],
    }


def test_actions_are_in_the_environments_units_for_one_or_many_observations(
    train: TrainRun, tmp_path: Path
) -> None:
    trainer = train(env="Long-v0", steps=200)
    policy = load_policy(tmp_path / "run", "latest")
    actions = Actions(toys.Counting.action_space)
    rows = np.random.default_rng(0).normal(size=(5, 2)) * 10
    expected = actions.to_environment(trainer.agent.act(rows))
    batch = policy(rows)
    np.testing.assert_array_equal(batch, expected)
    assert (batch.shape, batch.dtype) == ((5, 2), np.float32)
    for row, action in zip(rows, batch, strict=True):
        one = policy(row)
        assert one.shape == (2,)
        np.testing.assert_allclose(one, action, rtol=1e-5, atol=1e-6)
        assert toys.Counting.action_space.contains(one)
    assert (policy.observation_size, policy.action_size, policy.steps) == (2, 2, 200)
    for wrong in (np.zeros(3), np.zeros((2, 3)), np.zeros((1, 1, 2)), 1.0, (np.zeros(2), {})):
        with pytest.raises(ValueError, match=r"observation must have shape \[2\] or \[N, 2\]; got"):
            policy(wrong)
    with pytest.raises(FloatingPointError, match="observation must be finite; got"):
        policy(np.array([np.nan, 0.0]))
    policy.actor = lambda rows: np.zeros((len(rows), 2), np.float32)  # like a saturated layer
    with pytest.raises(FloatingPointError, match="observation must be finite; got"):
        policy(np.array([np.inf, 0.0]))


def test_best_and_latest_policies_have_the_weights_of_their_steps(
    train: TrainRun, tmp_path: Path
) -> None:
    trainer = train(evaluate_every_steps=100, actor_learning_rate=0.03)
    assert trainer.policies.best_step is not None
    best, latest = load_policy(tmp_path / "run"), load_policy(tmp_path / "run", "latest")
    assert best.steps == trainer.policies.best_step != 400
    assert latest.steps == 400
    rows = np.ones((1, 3), np.float32)
    actor = trainer.agent.Builder(trainer.agent.config, *spaces(3, 1), seed=9).actor()
    assign_weights(actor, trainer.policies.state()["best"]["weights"])
    np.testing.assert_array_equal(
        best(rows), trainer.actions.to_environment(actor.snapshot()(rows))
    )
    assert not np.array_equal(best(rows), latest(rows))
    np.testing.assert_array_equal(
        latest(rows), trainer.actions.to_environment(trainer.agent.act(rows))
    )


def test_loading_fails_with_the_reason(train: TrainRun, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not a run"):
        load_policy(tmp_path)
    train(steps=120)  # this run makes no update
    with pytest.raises(RunError, match="has been evaluated since the first update: select the l"):
        load_policy(tmp_path / "run", "best")
    with pytest.raises(RunError, match="which must be one of best, latest; got 'newest'"):
        load_policy(tmp_path / "run", "newest")
    load_policy(str(tmp_path / "run"), "latest")
    config = tmp_path / "run" / "config.json"
    edit_sealed(config, lambda d: d["settings"].update(precision="float64"))
    with pytest.raises(RunError, match=r"weights must be float64; .* is float32"):
        load_policy(tmp_path / "run", "latest")
    edit_sealed(config, lambda d: d["settings"].update(hidden_sizes=[9, 8]))
    with pytest.raises(RunError, match="/run cannot be loaded: "):
        load_policy(tmp_path / "run", "latest")
    for manifest in tmp_path.glob("run/checkpoints/*/manifest.json"):
        manifest.unlink()
    with pytest.raises(RunError, match="has no checkpoint yet"):
        load_policy(tmp_path / "run", "latest")


def test_observation_statistics_are_part_of_runs_checkpoints_and_policies(
    train: TrainRun, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"env": "Pendulum-v1", "warmup_steps": 40, "replay_ratio": 0.04}
    train("run", steps=77, normalize_observations=True, **settings)
    trainer = train("run", steps=120)
    normalization = trainer.agent.normalization
    assert normalization is not None
    assert normalization.moments.count == 120
    assert abs(normalization.mean.numpy()[2]) > 0.01
    row = np.array([0.5, -0.5, 3.0], np.float32)
    loaded = load_policy(tmp_path / "run", "latest")
    np.testing.assert_array_equal(loaded(row), trainer.policy(row))
    plain = train("plain", steps=120, **settings)
    assert not np.array_equal(plain.policy(row), trainer.policy(row))


MEMORY = {
    "env": "PendulumPositions-v1",
    "memory": "gru",
    "memory_units": 8,
    "sequence_length": 6,
    "sequences_per_update": 4,
    "num_envs": 2,
    "evaluation_episodes": 2,
    "steps": 260,
}


@pytest.fixture(scope="module")
def remembering(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a recurrent policy. Tests must not modify it."""
    path = tmp_path_factory.mktemp("remembering") / "run"
    train_in(path, **MEMORY)
    return path


def test_a_recurrent_policy_reproduces_its_evaluation_and_acts_in_episodes(
    remembering: Path,
) -> None:
    env = environment_maker("PendulumPositions-v1")()
    for which in ("best", "latest"):
        policy = load_policy(remembering, which)
        recorded = evaluations(remembering)
        assert (policy.steps in recorded) == (which == "best")
        found = run_episodes(policy, env, evaluation_seeds(0, 2)).summary()["return_mean"]
        if which == "best":
            assert found == recorded[policy.steps]
    observations = np.random.default_rng(0).uniform(-1, 1, (5, 3, 2)).astype(np.float32)
    rewards = np.arange(15.0).reshape(5, 3)
    ended = np.array([[False, t == 2, False] for t in range(5)])
    together = policy.start_episode(3)
    many = [together(observations[0])]
    many += [together(observations[t], rewards[t], ended[t]) for t in range(1, 5)]
    for row in range(3):
        act, alone = policy.start_episode(), []
        for t in range(5):
            if t and ended[t, row]:
                act = policy.start_episode()
            known = () if t == 0 or ended[t, row] else (rewards[t, row],)
            alone.append(act(observations[t, row], *known))
        np.testing.assert_allclose(alone, [actions[row] for actions in many], 1e-5, 1e-5)
    assert len({tuple(np.ravel(a)) for a in many}) == 5
    flipped = policy.start_episode(3)
    flipped(observations[0])
    assert not np.allclose(flipped(observations[1], rewards[1] + 5.0), many[1])


def test_wrong_calls_of_a_recurrent_policy_raise(remembering: Path) -> None:
    policy, observation = load_policy(remembering), np.zeros(2)
    assert policy.remembers
    with pytest.raises(ValueError, match=r"is recurrent: start an episode with act = pol"):
        policy(observation)
    act = policy.start_episode()
    with pytest.raises(ValueError, match="reward and ended must be omitted for the first"):
        act(observation, 1.0)
    with pytest.raises(ValueError, match=r"observation must have shape \[2\]; got \(3, 2\)"):
        act(np.zeros((3, 2)))
    act(observation)
    with pytest.raises(ValueError, match="reward is missing: a recurrent policy needs"):
        act(observation)
    with pytest.raises(FloatingPointError, match="observation must be finite"):
        policy.start_episode()(np.array([0.0, np.nan]))
    with pytest.raises(ValueError, match=r"observation must have shape \[4, 2\]; got \(3, 2\)"):
        policy.start_episode(4)(np.zeros((3, 2)))


def test_a_policy_that_is_not_recurrent_can_also_act_in_episodes(
    train: TrainRun, tmp_path: Path
) -> None:
    train(steps=50)
    policy, observation = load_policy(tmp_path / "run"), np.ones(3)
    act = policy.start_episode()
    assert not policy.remembers
    np.testing.assert_array_equal(act(observation), policy(observation))
    np.testing.assert_array_equal(act(observation, -3.0), policy(observation))
