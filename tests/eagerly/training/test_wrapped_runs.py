"""Runs in wrapped environments: resuming, changes of the wrappers, and commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from click.testing import CliRunner

from eagerly import load_policy
from eagerly.environments.factory import environment_maker
from eagerly.environments.guard import GuardedEnvironment
from eagerly.errors import UsageError
from eagerly.scripts import record
from eagerly.scripts import train as script
from eagerly.storage.digests import digests
from tests import toys
from tests.small_runs import TrainRun, scalars

toys.register()
NAMED = [
    "gymnasium.wrappers:DelayObservation(delay=2)",
    "eagerly.wrappers:RateLimit(change=0.3)",
    "eagerly.wrappers:DelayAction(delay=3)",
    "eagerly.wrappers:PreviousActions(count=3)",
    "eagerly.wrappers:SmoothnessCost(weight=2)",
    "gymnasium.wrappers:FrameStackObservation(stack_size=3)",
]


def doubled(env: gymnasium.Env) -> gymnasium.Env:
    return gymnasium.wrappers.TransformReward(env, lambda reward: 2 * reward)


def test_a_run_resumes_exactly_within_an_episode(train: TrainRun, tmp_path: Path) -> None:
    wrapper = [*NAMED, doubled]
    settings = {"env": "Long-v0", "evaluations": "none", "check_env": False, "wrapper": wrapper}
    train("whole", **settings, warmup_steps=1000, steps=60)
    train("parts", **settings, warmup_steps=1000, steps=33)  # 33 of 40 steps of the episode
    trainer = train("parts", steps=60, wrapper=wrapper)
    assert trainer.lines == []
    assert digests(tmp_path / "parts") == digests(tmp_path / "whole")


def test_wrappers_are_part_of_a_run(train: TrainRun, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"env": "Terminating-v0", "steps": 60, "evaluate_every_steps": 60}
    cost = "eagerly.wrappers:SmoothnessCost(weight=1)"
    train(**settings, wrapper=[cost, doubled], num_envs=2)
    run = tmp_path / "run"
    name = "factory tests.eagerly.training.test_wrapped_runs:doubled"
    assert json.loads((run / "config.json").read_text())["settings"]["wrapper"] == [cost, name]
    found = scalars(run)  # evaluations are wrapped, too
    (cost_of_episode,) = found["evaluation_info/smoothness_cost", 60]
    assert np.isclose(found["evaluation/return_mean", 60], 2 * (3 - cost_of_episode))
    load_policy(run)
    with pytest.raises(UsageError, match=f"Python {name}: pass all wrappers again"):
        train(steps=70)
    with pytest.raises(UsageError, match=rf"--wrapper: the run has {cost[:20]}.*, you gave none"):
        train(steps=70, wrapper=[])
    trainer = train(steps=70, wrapper=[cost], override=True)
    assert any("--wrapper changed" in line for line in trainer.lines), trainer.lines


@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        ("a:b", r"wrapper must be a list of module:factory .* or callables; got 'a:b'"),
        ([1], "wrapper must be a list of"),
        (["a:b"] * 33, "wrapper must be a list of at most 32 elements"),
        (["a:b(x='" + "x" * 500 + "')"], "names of at most 500 printable characters"),
        (["a b"], r"wrapper must be module:factory .*; got 'a b'"),
    ],
)
def test_invalid_wrappers_are_rejected(train: TrainRun, wrapper: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        train(wrapper=wrapper)


def test_the_option_is_repeated_and_none_removes_the_wrappers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["td3", "--env", "Pendulum-v1", "--print-config"]
    two = "a:b(x=(1, 2))", "c:d"
    given = [word for name in two for word in ("--wrapper", name)]
    printed = CliRunner().invoke(script.main, [*words, *given])
    assert 'wrapper = ["a:b(x=(1, 2))", "c:d"]' in printed.output, printed.output
    Path("saved.toml").write_text(printed.output)
    words += ["--config", "saved.toml"]
    assert CliRunner().invoke(script.main, words).output == printed.output
    removed = CliRunner().invoke(script.main, [*words, "--wrapper", "none"])
    assert "wrapper = []\n" in removed.output, removed.output


def test_recordings_describe_the_wrapped_environment() -> None:
    wrappers = ["eagerly.wrappers:PreviousActions()", NAMED[-1]]
    env = GuardedEnvironment(environment_maker("Pendulum-v1", wrappers=wrappers)(), "env")
    spec = record._origin(Path("run"), "td3", env)["env_spec"]
    again = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(spec))
    assert again.observation_space == env.observation_space
