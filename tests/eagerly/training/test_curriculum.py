"""Callbacks change arguments of the training environments, and resumed runs stay exact."""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from eagerly import Callback, RunError
from eagerly.benchmarks.killing import Training, Trial
from eagerly.errors import UsageError
from eagerly.scripts.train import _print_start
from eagerly.storage.config import RunConfig
from eagerly.storage.digests import digests
from eagerly.training.callbacks import TrainerView
from eagerly.training.curriculum import change_kwargs, current_kwargs, scalars
from eagerly.training.offline import NoEnvironments
from tests.eagerly.training.climbing import Climb, Slope
from tests.small_runs import TrainRun
from tests.small_runs import scalars as curves

BRIEF: dict[str, Any] = {
    "env": Slope,
    "steps": 60,
    "warmup_steps": 20,
    "replay_ratio": 0.1,
    "evaluate_every_steps": 40,
    "checkpoint_every_steps": 1000,
    "summarize_every_steps": 20,
}
LAG = {"policy_lag": 1, "num_envs": 3, "group_size": 2, "rollout_steps": 2}
CASES = {"one": {}, "lag": LAG, "shared": {"evaluations": "shared"}}


class StopsOnce(Callback):
    """Stops the run at a step."""

    def __init__(self, step: int) -> None:
        self._step = step

    def on_rollout(self, training: TrainerView, rollout: Any) -> None:
        if training.steps == self._step:
            training.stop("here")


def saved_kwargs(trainer: Any) -> list[Any]:
    """Returns the arguments of each running episode, of the round in flight and of the next one."""
    return [json.loads(each) for each in trainer.collector.environments.state()["kwargs"]]


@pytest.mark.parametrize(
    "case", [pytest.param(x, marks=() if x == "lag" else pytest.mark.long) for x in CASES]
)
def test_a_resumed_run_equals_an_uninterrupted_one(
    case: str, train: TrainRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = BRIEF | CASES[case]
    train("straight", callbacks=[Climb()], **settings)
    stopped = train("stopped", callbacks=[Climb(), StopsOnce(30)], **settings)
    assert stopped.steps == 30
    if case == "lag":  # the round in flight began before the change
        *_, in_flight, following = saved_kwargs(stopped)
        assert (in_flight["difficulty"], following["difficulty"]) == (2, 3)
    again = train("stopped", env=Slope, callbacks=[Climb()])
    assert not again.lines
    assert digests(tmp_path / "stopped") == digests(tmp_path / "straight")
    found = {point: x for point, x in curves(tmp_path / "stopped").items() if "env/" in point[0]}
    assert [values for _, values in sorted(found.items())] == [[2.0], [4.0], [6.0]]
    assert again.config.env_kwargs == {}
    _print_start(again, "resumes")  # as `eagerly resume`
    assert '{"difficulty": 6} (changed by a callback; this command' in capsys.readouterr().out


def test_other_spaces_stop_the_run_after_saving(train: TrainRun, tmp_path: Path) -> None:
    with pytest.raises(
        RunError,
        match=r"stopped after step 34, checkpoint saved: environment 0 rejects the arguments of "
        r'set_env_kwargs and keeps {"difficulty": 2}: with .*, spaces must stay .* got Box.*\(5,\)',
    ):
        train(callbacks=[Climb(rows=5)], **BRIEF)
    # The arguments in the checkpoint of a moved run need consent.
    (tmp_path / "run").rename(tmp_path / "moved")
    with pytest.raises(UsageError, match=r'would pass {"difficulty": 2} to its environment: add'):
        train("moved", env=Slope)
    (tmp_path / "moved").rename(tmp_path / "run")
    again = train(env=Slope, callbacks=[Climb()], steps=40)
    assert (again.steps, saved_kwargs(again)[-1]) == (40, {"difficulty": 4})
    assert not again.lines
    # An override of the arguments discards the changes.
    again = train(env=Slope, env_kwargs={"difficulty": 1}, override=True, steps=41)
    assert "kwargs" not in again.collector.environments.state()
    assert again.collector.environments.observations[0, 1] == 1.0


def environments() -> Any:
    return SimpleNamespace(kwargs="{}")


def run() -> Any:
    trusted: list[dict[str, Any]] = []
    config = RunConfig(env="x", env_kwargs={"gravity": [9.8], "drag": 1})
    return SimpleNamespace(config=config, trust_kwargs=trusted.append, trusted=trusted)


def test_changes_are_merged_and_equal_values_change_nothing() -> None:
    found, own = environments(), run()
    change_kwargs(own, found, {"drag": 1, "gravity": [9.8]})
    assert (found.kwargs, own.trusted, scalars(found)) == ("{}", [], {})
    change_kwargs(own, found, {"drag": True, "scene": "hills"})
    change_kwargs(own, found, {"drag": 2.5})
    assert json.loads(found.kwargs) == {"drag": 2.5, "scene": "hills"}
    assert own.trusted[-1] == {"drag": 2.5, "scene": "hills"}
    assert scalars(found) == {"env/drag": 2.5}
    copied = current_kwargs(own, found)
    assert copied == {"gravity": [9.8], "drag": 2.5, "scene": "hills"}
    copied["gravity"].append(0.0)
    assert current_kwargs(own, found)["gravity"] == [9.8]


@pytest.mark.parametrize(
    "value", [np.float32(1), float("nan"), (1, 2), {1: 2}, "\ud800", {1}], ids=ascii
)
def test_values_that_json_cannot_represent_are_rejected(value: Any) -> None:
    with pytest.raises(TypeError, match="set_env_kwargs: drag must be a finite number, a boolean"):
        change_kwargs(run(), environments(), {"drag": value})


def test_an_offline_run_has_no_arguments_to_change() -> None:
    with pytest.raises(RunError, match="an offline run has no training environments"):
        change_kwargs(run(), NoEnvironments(), {"drag": 2})


@pytest.mark.long
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"evaluations": "shared"},
        LAG | {"steps": 3000},
        LAG | {"collectors": "processes"},
        {"num_envs": 2, "collectors": "processes", "memory": "gru", "steps": 500},
    ],
    ids=["one", "shared", "lag", "lag in processes", "recurrent in processes"],
)
def test_killed_runs_equal_uninterrupted_ones(settings: dict[str, Any], tmp_path: Path) -> None:
    brief = {name: value for name, value in BRIEF.items() if name != "env"}
    brief |= {"steps": 1000, "checkpoint_every_steps": 20, "evaluate_every_steps": 150}
    brief |= settings
    words = [sys.executable, "-m", "tests.eagerly.training.climbing", json.dumps(brief)]
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    began = time.monotonic()
    Training([*words, str(straight)], straight).finish()
    seed = random.randrange(2**32)
    seconds = time.monotonic() - began
    trial = Trial([*words, str(killed)], killed, random.Random(seed), seconds)
    if "collectors" in brief:  # also kills collectors
        trial.collectors, trial.most_collectors = brief["collectors"], 2
    assert len(trial.killed(brief["steps"], 8)) == 8, seed
    assert digests(killed) == digests(straight), seed
