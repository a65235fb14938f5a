"""The table of tested environments: the stages of a test, its failures and its row."""

from __future__ import annotations

import json
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from eagerly.benchmarks import suites
from eagerly.benchmarks.suites import FINE, RESULTS, STAGES, Examination, table
from eagerly.benchmarks.tasks import TASKS, Task


def test_the_table_has_twenty_environments_of_seven_suites() -> None:
    assert len({task.name for task in TASKS}) == len(TASKS) == 20
    assert len({task.suite for task in TASKS}) == 7


def test_the_published_table_matches_its_rows() -> None:
    rows = json.loads((RESULTS / "environments.json").read_text())
    assert "\n".join(table(rows)) in (RESULTS / "environments.md").read_text()


def test_every_published_stage_passes_unless_a_note_explains_it() -> None:
    rows = json.loads((RESULTS / "environments.json").read_text())
    assert len(rows) == len(TASKS)
    assert suites.failures(rows) == []
    row = {"stages": dict.fromkeys(STAGES, FINE) | {"same bits": "others", "video": "no"}}
    assert suites.failures({"BipedalWalker-v3": row}) == ["BipedalWalker-v3, video"]


def test_the_table_quotes_the_errors_of_failed_stages() -> None:
    task = TASKS[0]
    row = {"stages": dict.fromkeys(STAGES, FINE), "spaces": ["float64 [1]", "int64 [2]"]}
    row["stages"]["video"] = "RunError: no\n  light"
    lines = table({task.name: row | {"versions": {"mujoco": "3.11.0"}}})
    (line,) = [line for line in lines if f"`{task.env}`" in line]
    assert line.endswith("| float64 [1] | int64 [2] | yes | yes | yes | yes | [1] | yes |")
    assert f"1. {task.name}, video: RunError: no light" in lines


class Drifting(gymnasium.Env):
    """An environment whose rewards grow in every step, so that no run can be reproduced."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float64)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    made = 0.0

    def reset(self, *, seed=None, options=None):  # type: ignore[no-untyped-def]
        super().reset(seed=seed)
        return np.zeros(1), {}

    def step(self, action):  # type: ignore[no-untyped-def]
        type(self).made += 1.0
        return np.zeros(1), type(self).made, True, False, {}


gymnasium.register("Drifting-v0", entry_point=Drifting)


@pytest.mark.usefixtures("unoptimized")
def test_a_stage_fails_if_bits_or_returns_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suites, "STEPS", 60)
    monkeypatch.setattr(suites, "STOP", 40)
    small = {"warmup_steps": 30, "evaluate_every_steps": 20, "mode": "eager"}
    task = Task("own", "Drifting-v0", {}, small | {"check_env": False})
    stages = dict(Examination(task, tmp_path).stages())
    for stage in ("train", "resume", "load_policy"):
        stages[stage]()
    with pytest.raises(ValueError, match=r"differs from an uninterrupted run in .*replay buffer"):
        stages["same bits"]()
    with pytest.raises(ValueError, match="expected the recorded return"):
        stages["evaluate"]()
