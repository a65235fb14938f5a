"""Stopping and resuming on request: timed checkpoints, new episodes, a second Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from eagerly.storage.config import RunConfig
from eagerly.storage.digests import digests
from eagerly.storage.manifest import published
from tests.helpers import ROOT
from tests.small_runs import TrainRun


def test_checkpoints_are_also_written_at_time_intervals(train: TrainRun, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"checkpoint_every_steps": 10**6, "keep_checkpoints": 1000}
    settings |= {"steps": 6, "warmup_steps": 1, "replay_ratio": 0.2}
    train("never", **settings, checkpoint_every_minutes=0.0)
    train("seldom", **settings)
    train("often", **settings, checkpoint_every_minutes=1e-9)  # writes one per round
    counts = {name: len(published(tmp_path / name)) for name in ("never", "seldom", "often")}
    assert counts == {"never": 1, "seldom": 1, "often": 6}
    assert RunConfig(env="x").checkpoint_every_minutes == 10.0
    assert digests(tmp_path / "often") == digests(tmp_path / "never")


def test_episodes_start_over_on_request_with_a_warning(train: TrainRun, tmp_path: Path) -> None:
    settings = {"env": "Long-v0", "num_envs": 2, "steps": 90}  # stops 5 steps into an episode
    for name in ("yes", "no"):
        train(name, **settings)
    assert train("yes", steps=92).lines == []
    trainer = train("no", steps=92, restore_episodes="no")
    (line,) = trainer.lines
    assert "environments [0, 1] started new episodes" in line
    assert line.endswith("--restore-episodes no")
    assert trainer.collector.environments.observations[:, 1].tolist() == [1.0, 1.0]
    assert trainer.collector.environments.state()["episodes"] == [2, 2]
    # The run saved no actions to replay, so restoring episodes now is impossible and is reported.
    again = train("no", steps=94, restore_episodes="yes")
    assert "started new episodes" in again.lines[0]


def started(run: Path, env: str = "Pendulum-v1") -> subprocess.Popen[str]:
    words = ["td3", "--env", env, "--run-dir", str(run), "--steps", "10000000"]
    words += ["--warmup-steps", "500", "--hidden-sizes", "8,8", "--checkpoint-every-steps", "200"]
    words += ["--no-check-env", "--mode", "eager", "--replay-ratio", "0.01"]
    return subprocess.Popen(
        [sys.executable, ROOT / "scripts" / "train.py", *words],
        cwd=run.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # unlike a shell's background job, it receives SIGINT
    )


STUCK = """
import time

import gymnasium
import numpy as np


class Stuck(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.steps > 450:
            time.sleep(3600.0)
        return np.zeros(1, np.float32), 0.0, self.steps % 10 == 0, False, {}


gymnasium.register("Stuck-v0", Stuck)
"""


@pytest.mark.long
@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_stops_immediately_without_damage(
    tmp_path: Path, second: signal.Signals
) -> None:
    run = tmp_path / "run"
    (tmp_path / "stuck.py").write_text(STUCK)
    process = started(run, "stuck:Stuck-v0")
    while not list(run.glob("checkpoints/*400-*/manifest.json")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    # Wait until the run is in an endless step. After the first signal, the run would complete it.
    time.sleep(0.5)
    os.kill(process.pid, signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None
    os.kill(process.pid, second)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == (130 if second == signal.SIGINT else -signal.SIGTERM)
    assert "Traceback" not in output + errors
    if second == signal.SIGINT:
        assert "stopped immediately. Resume from step 400 with" in errors
    assert published(run)[-1].steps == 400
    assert list(run.rglob("*.tmp")) == []


def test_interrupting_the_start_leaves_nothing_behind(tmp_path: Path) -> None:
    process = started(tmp_path / "run")
    assert process.stderr is not None
    assert process.stderr.readline() == "loading TensorFlow ...\n"
    os.kill(process.pid, signal.SIGINT)
    assert process.communicate(timeout=60) == ("", "stopped by SIGINT\n")
    assert process.returncode == 130
    assert not (tmp_path / "run").exists()
