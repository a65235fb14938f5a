"""Runs in unusual environments warn at each start, and save the result of the environment check."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import ClipAction

from eagerly import RunError, Trainer, load_policy, open_run
from eagerly.environments.factory import environment_maker
from eagerly.training.evaluation import run_episodes
from tests import toys
from tests.eagerly.environments import test_checking as odd
from tests.eagerly.training.test_trainer import _same
from tests.small_runs import TrainRun, train_in

FEW: dict[str, Any] = {"steps": 130, "evaluate_every_steps": 125, "checkpoint_every_steps": 1000}


def clipped_without_a_seed() -> gymnasium.Env:
    return ClipAction(odd.TakesNoSeed())


def test_an_unusual_environment_trains_resumes_and_yields_a_policy(
    train: TrainRun, tmp_path: Path
) -> None:
    make = clipped_without_a_seed
    straight = train("straight", **FEW | {"env": make})
    unchecked = train("parts", **FEW | {"env": make, "steps": 121, "check_env": False})
    assert unchecked.collector.environments.repeats is None
    continued = train("parts", env=make, steps=130)
    assert continued.collector.environments.repeats is True
    _same(continued, straight)
    for trainer in (straight, unchecked, continued):
        assert sum("reset takes no seed" in line for line in trainer.lines) == 1
    np.testing.assert_array_equal(straight.actions.low, [-1, -1])
    env = environment_maker(make)()
    assert np.isfinite(
        run_episodes(load_policy(tmp_path / "parts", "latest"), env, [0]).returns
    ).all()


def test_a_resumed_run_remembers_the_result_of_the_check(train: TrainRun, tmp_path: Path) -> None:
    told = ["is not reproducible" in line for line in train(env=odd.NoisyStep, steps=3).lines]
    assert any(told)
    continued = train(env=odd.NoisyStep, steps=6)  # resumes between two episodes
    assert continued.collector.environments.repeats is False
    assert not any("is not reproducible" in line for line in continued.lines)
    shutil.rmtree(tmp_path / "run" / "checkpoints")  # simulates a kill before the first checkpoint
    assert any("is not reproducible" in line for line in train(env=odd.NoisyStep, steps=9).lines)


def test_an_override_of_the_environment_does_not_count_as_irreproducibility(
    train: TrainRun, tmp_path: Path
) -> None:
    train(steps=30)
    changed = train(override=True, env_kwargs={"g": 3.0}, steps=40)
    assert changed.collector.environments.repeats is True  # the new environment was checked
    (line,) = changed.lines
    assert line.endswith("differs from an uninterrupted one: --env-kwargs changed")
    # No checkpoint follows this override, as if the process had been killed.
    Trainer(open_run(tmp_path / "run", None, {"seed": 5}, override=True)).close()
    again = train(steps=50)
    assert [line.endswith("--seed changed") for line in again.lines] == [True]
    assert again.collector.environments.repeats is None
    assert train(steps=60).collector.environments.repeats is True
    both = {"seed": 6, "env_kwargs": {"g": 4.0}}
    Trainer(open_run(tmp_path / "run", None, both, override=True)).close()
    again = train(steps=70)
    assert [line.endswith("--env-kwargs and --seed changed") for line in again.lines] == [True]
    assert again.collector.environments.repeats is True  # checked, as no checkpoint followed


class Port(toys.Counting):
    """A robot whose port can be open only once."""

    is_open = False

    def __init__(self) -> None:
        if Port.is_open:
            raise OSError("device busy")
        super().__init__()
        Port.is_open = True

    def close(self) -> None:
        Port.is_open = False


@pytest.mark.parametrize(
    "settings", [{}, {"evaluations": "none", "num_envs": 2}], ids=["evaluation", "training"]
)
def test_an_environment_that_can_exist_only_once_is_reported_with_advice(
    train: TrainRun, settings: dict[str, Any]
) -> None:
    with pytest.raises(RunError, match=r"device busy .*\. An instance .* use --hardware, --eval"):
        train(env=Port, **settings)
    assert not Port.is_open
    train(env=Port, evaluations="none", steps=20)


class Moving(toys.Counting):
    """A simulator that enters the folder of its assets."""

    def __init__(self) -> None:
        os.chdir("/")
        super().__init__()


def test_an_environment_that_changes_the_working_directory_needs_an_absolute_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError, match="path run refers to another place now: give the run dir"):
        train_in(Path("run"), env=Moving)
    monkeypatch.chdir(tmp_path)
    train_in(tmp_path / "run", env=Moving, steps=20, evaluations="none")
    assert (tmp_path / "run" / "config.json").exists()
