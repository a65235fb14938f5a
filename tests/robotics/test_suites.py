"""Trains, evaluates and films tasks of dm_control and gymnasium-robotics: `make test-robotics`."""

from __future__ import annotations

import ctypes.util
import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest

from eagerly.environments.checking import check_environment
from eagerly.environments.factory import environment_maker
from eagerly.spaces import Observations
from tests.helpers import script
from tests.small_runs import logged

_NEEDED = ("shimmy", "dm_control", "gymnasium_robotics")
_MISSING = [name for name in _NEEDED if not importlib.util.find_spec(name)]
pytestmark = pytest.mark.skipif(
    bool(_MISSING), reason=f"needs {', '.join(_MISSING)}: `make test-robotics`"
)
CHEETAH = "shimmy:dm_control/cheetah-run-v0"


@pytest.mark.parametrize("name", ["cheetah-run-v0", "FetchReach-v4", "PointMaze_UMaze-v3"])
def test_a_task_is_trained_continued_evaluated_filmed_and_its_policy_loaded(
    name: str, tmp_path: Path
) -> None:
    from eagerly.benchmarks.suites import STAGES, Examination
    from eagerly.benchmarks.tasks import TASKS

    (task,) = [task for task in TASKS if task.name == name]
    passed = []
    for stage, call in Examination(task, tmp_path).stages():
        if stage != "video" or ctypes.util.find_library("EGL"):
            call()  # raises an error if the stage fails
            passed.append(stage)
    assert set(STAGES) - set(passed) <= {"video"}


@pytest.mark.parametrize(
    ("env", "entries"),
    [
        (CHEETAH, {"position": 8, "velocity": 9}),
        (
            "gymnasium_robotics:FetchReach-v4",
            {"achieved_goal": 3, "desired_goal": 3, "observation": 10},
        ),
        (
            "gymnasium_robotics:PointMaze_UMaze-v3",
            {"achieved_goal": 2, "desired_goal": 2, "observation": 4},
        ),
    ],
)
def test_the_agent_observes_every_entry_including_goals(env: str, entries: dict[str, int]) -> None:
    made = environment_maker(env)()
    observation, _ = made.reset(seed=3)
    made.close()
    row = Observations(made.observation_space).flatten(observation)
    assert row.shape == (sum(entries.values()),)
    ends = np.cumsum(list(entries.values()))[:-1]
    for (entry, size), part in zip(entries.items(), np.split(row, ends), strict=True):
        assert observation[entry].shape == (size,)
        np.testing.assert_array_equal(part, observation[entry].astype(np.float32), entry)


def test_the_check_before_a_run_accepts_shared_goals_with_a_warning() -> None:
    make = environment_maker("gymnasium_robotics:FrankaKitchen-v1")
    with logged() as lines:
        assert check_environment(make(), make.name)
    (line,) = lines
    assert "return the same object" in line


def test_the_command_line_takes_a_task_of_dm_control(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in {"DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL"} & os.environ.keys():
        monkeypatch.delenv(name)
    small = (
        "--hidden-sizes",
        "8,8",
        "--batch-size",
        "8",
        "--mode",
        "eager",
        "--warmup-steps",
        "90",
    )
    begun = script(
        "train.py",
        *("td3", "--env", CHEETAH, "--env-kwargs", '{"max_episode_steps": 20}', *small),
        *("--steps", "100", "--evaluate-every-steps", "50", "--run-dir", "run", "--no-progress"),
        cwd=tmp_path,
    )
    assert begun.returncode == 0, begun.stderr
    continued = script("train.py", "resume", "run", "--steps", "110", "--no-progress", cwd=tmp_path)
    assert "resumes at step 100" in continued.stdout
    assert continued.returncode == 0, continued.stderr
    if ctypes.util.find_library("EGL"):
        played = script("evaluate.py", "run", "--video", "cheetah.mp4", cwd=tmp_path)
        assert played.returncode == 0, played.stderr
        assert (tmp_path / "cheetah.mp4").stat().st_size > 1000
