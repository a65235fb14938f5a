"""An environment from a package outside the repository, on the command line."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from eagerly.scripts import train
from tests.helpers import ROOT, gone, script

PACKAGE = """
import gymnasium
import numpy as np

class Arm(gymnasium.Env):
    # Episodes have three steps, observations are float64, and all action bounds differ.
    def __init__(self, goal=0.0, gain=1.0):
        self.goal, self.gain = goal, gain
        self.observation_space = gymnasium.spaces.Box(-1e6, 1e6, (3,), np.float64)
        self.action_space = gymnasium.spaces.Box(
            np.array([-1.0, 0.0], np.float32), np.array([0.5, 20.0], np.float32)
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.count = self.np_random.normal(size=3), 0
        return self.at.copy(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.count += 1
        self.at = self.at + self.gain * np.array([action[0], action[1] / 20, 0.0])
        distance = float(np.abs(self.at - self.goal).sum())
        info = {"is_success": distance < 1.0}
        return self.at.copy(), -distance, self.count == 3, False, info

gymnasium.register("MyArm-v0", entry_point=Arm)
"""
SETTINGS = [
    *("td3", "--env", "my_robots:MyArm-v0", "--env-kwargs", '{"goal": 0.5, "gain": 0.25}'),
    *("--num-envs", "2", "--warmup-steps", "200", "--updates-per-call", "10", "--mode", "eager"),
    *("--evaluate-every-steps", "300", "--hidden-sizes", "16,16", "--batch-size", "16"),
    *("--replay-ratio", "0.1"),
]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Returns a directory outside the repository with a user's package."""
    (tmp_path / "my_robots").mkdir()
    (tmp_path / "my_robots" / "__init__.py").write_text(PACKAGE)
    return tmp_path


def rows(run: Path) -> list[dict[str, str]]:
    with (run / "evaluations.csv").open() as file:
        return list(csv.DictReader(file))


def children(pid: int) -> list[int]:
    return [
        int(path.name)
        for path in Path("/proc").glob("[0-9]*")
        if (path / "stat").exists()
        and (path / "stat").read_text().rpartition(")")[2].split()[1] == str(pid)
    ]


@pytest.mark.long
def test_a_custom_environment_is_trained_resumed_and_evaluated_in_processes(outside: Path) -> None:
    # Like Ctrl-C in a terminal, the signal below reaches the whole process group.
    words = [*SETTINGS, "--steps", "900", "--run-dir", "parts", "--collectors", "processes"]
    process = subprocess.Popen(
        [sys.executable, ROOT / "scripts" / "train.py", *words],
        cwd=outside,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while not (outside / "parts" / "evaluations.csv").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    workers = children(process.pid)
    assert len(workers) >= 2
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    (step,) = re.findall(r"stopped by SIGINT at step (\d+)", output)
    assert 300 <= int(step) < 900
    assert all(gone(worker) for worker in workers)

    # On resuming, the environment's keyword arguments are restored from disk.
    again = script("train.py", "resume", "parts", cwd=outside)
    assert again.returncode == 0, again.stderr
    assert f"resumes at step {step}" in again.stdout
    assert "finished: 900 steps, 70 updates" in again.stdout
    told = 'environment   2 x my_robots:MyArm-v0 {"goal": 0.5, "gain": 0.25}'
    assert f"{told}, 2 collectors (processes)" in again.stdout
    saved = json.loads((outside / "parts" / "config.json").read_text())["settings"]
    assert saved["env"] == "my_robots:MyArm-v0"
    assert saved["env_kwargs"] == {"goal": 0.5, "gain": 0.25}
    assert np.load(next((outside / "parts").glob("replay/*0.npy"))).shape[1] == 2 * 3 + 2 + 2

    evaluated = script("evaluate.py", "parts", "--json", cwd=outside)
    assert evaluated.returncode == 0, evaluated.stderr
    figures = json.loads(evaluated.stdout)
    trained = (row for row in rows(outside / "parts") if int(row["updates"]))
    assert figures["return_mean"] == max(float(row["return_mean"]) for row in trained)
    assert figures["length_mean"] == 3
    assert 0 <= figures["info"]["is_success"] <= 1


def test_a_missing_package_is_named(outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(outside / "my_robots")
    missing = CliRunner().invoke(train.main, [*SETTINGS, "--run-dir", "x"])
    assert missing.exit_code == 2
    assert "needs the package 'my_robots', which cannot be imported" in missing.stderr
