"""Grids of runs: the file format, names, GPUs, and the job array for Slurm."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from eagerly.errors import RunError
from eagerly.scripts import job
from eagerly.scripts.grid import read_grid
from eagerly.scripts.job import gpus
from eagerly.scripts.main import main
from tests.scripts.test_seeds import _stand_in

GRID = """
agent = ["td3", "DDPG"]
env = "Pendulum-v1"
seed = "0..1"
steps = 50
hidden_sizes = [[8, 8], [16]]
mode = "eager"
[td3]
policy_delay = [1, 2]
"""


@pytest.fixture(autouse=True)
def _there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("grid.toml").write_text(GRID)


def _sweep(*words: str) -> Result:
    return CliRunner().invoke(main, ["sweep", "grid.toml", *words])


def test_a_list_is_an_axis_and_a_table_belongs_to_one_agent() -> None:
    runs = read_grid(Path("grid.toml"), Path("all"))
    assert len({run.path for run in runs}) == len(runs) == 2 * 2 * 2 + 2 * 2
    assert [run.name for run in runs[:3]] == [
        "td3-Pendulum-v1-hidden_sizes-8-8-policy_delay-1/seed-0",
        "td3-Pendulum-v1-hidden_sizes-8-8-policy_delay-1/seed-1",
        "td3-Pendulum-v1-hidden_sizes-8-8-policy_delay-2/seed-0",
    ]
    assert runs[0].path == Path("all") / runs[0].name
    assert runs[0].given == {
        **{"env": "Pendulum-v1", "steps": 50, "hidden_sizes": (8, 8), "mode": "eager"},
        **{"policy_delay": 1, "seed": 0},
    }
    assert (runs[-1].agent, runs[-1].name) == ("ddpg", "ddpg-Pendulum-v1-hidden_sizes-16/seed-1")
    assert "policy_delay" not in runs[-1].given


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("agent =", "agents ="), r'must name at least one agent, as in agent = \["td3", "ddpg"\]'),
        (('"td3", "DDPG"', "1"), "must name at least one agent"),
        (("steps = 50", "steps = [50, 0]"), "steps must be at least 1 .*; got 0"),
        (("[[8, 8], [16]]", "[8, 8]"), r"one list per value; got \[8, 8\]: .* = \[\[8, 8\]\]"),
        (("[[8, 8], [16]]", "8"), r"one list per value; got 8: for one value, write \[\[64, 64\]"),
        (("steps = 50", "steps = []"), "steps must have at least one value"),
        (("steps = 50", "gamma = 0.9"), "unknown settings: gamma. Use discount"),
        (("[td3]", "[td7]"), r"has a table \[td7\], but agent does not contain it"),
        (('"0..1"', '"1..0"'), "seed: expected an ascending range"),
        (('"0..1"', '"0..99"\nbatch_size = [' + "8," * 99 + "]"), "at most 10,000 runs"),
        (('"0..1"', "[0, 0]"), "several runs called td3-Pendulum-v1-.*: remove repeated values"),
        (("agent =", "agent"), r"grid\.toml cannot be read"),
    ],
)
def test_invalid_grids_are_rejected(change: tuple[str, str], message: str) -> None:
    Path("grid.toml").write_text(GRID.replace(*change))
    with pytest.raises(RunError, match=message):
        read_grid(Path("grid.toml"), Path())


def test_text_none_unsets_a_setting() -> None:
    Path("grid.toml").write_text(
        'agent = "td3"\nenv = "Pendulum-v1"\nstop_at_return = ["none", -200.0]'
    )
    given = [run.given["stop_at_return"] for run in read_grid(Path("grid.toml"), Path())]
    assert given == [None, -200.0]


def test_runs_share_gpus_evenly_and_the_command_is_printed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    Path("grid.toml").write_text('agent = "td3"\nenv = "Pendulum-v1"\nseed = "0..2"')
    _stand_in(monkeypatch, "time.sleep(0.3)\nprint(os.environ['CUDA_VISIBLE_DEVICES'])")
    result = _sweep("--jobs", "3", "--no-progress")
    assert "runs          runs/grid, 3 runs, 3 at a time" in result.output
    assert re.search(r"^resume with .*\bsweep\.py grid\.toml --jobs 3$", result.output, re.M)
    logs = sorted(Path("runs/grid/td3-Pendulum-v1").glob("seed-*.log"))
    assert [log.read_text().strip() for log in logs] == ["3", "5", "3"]
    Path("grid.toml").write_text(
        'agent = "td3"\nenv = "Pendulum-v1"\nseed = 0\nreplicas = [2]\nmode = "graph"'
    )
    _sweep("--no-progress", "--run-dir", "runs/two")
    (log,) = Path("runs/two").rglob("seed-*.log")
    assert log.read_text().strip() == "3,5"


def test_several_gpus_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(job, "_GPUS", tmp_path / "gpus")
    assert gpus() == []
    for name in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / "gpus" / name).mkdir(parents=True)
    assert gpus() == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert gpus() == []


SAVES_ON_SIGTERM = """
import pathlib, signal, sys, time
def save(*_):
    time.sleep(0.2)
    pathlib.Path("saved").touch()
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
pathlib.Path("began").touch()
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("program", "code", "requeued"),
    [(SAVES_ON_SIGTERM, 143, "7_2\n"), ("raise SystemExit(3)", 3, "")],
)
def test_a_task_forwards_sigterm_and_requeues_itself_once_its_run_is_saved(
    program: str, code: int, requeued: str
) -> None:
    result = _sweep("--slurm", "--jobs", "4", "--run-dir", "all runs")
    assert result.output.splitlines()[-1] == "submit    sbatch 'all runs/array.sh'"
    script, commands = Path("all runs/array.sh"), Path("all runs/commands.txt")
    lines = commands.read_text().splitlines()
    assert "#SBATCH --array=1-12%4\n" in script.read_text()
    assert len(lines) == 12
    assert "--policy-delay 1 --seed 1 --run-dir 'all runs/td3-" in lines[1]
    edited = script.read_text() + "#SBATCH --partition=gpu\n"
    script.write_text(edited)
    again = _sweep("--slurm", "--jobs", "4", "--run-dir", "all runs")
    assert (again.exit_code, "submit it with sbatch 'all runs/array.sh'" in again.output) == (
        2,
        True,
    )
    assert script.read_text() == edited
    Path("program.py").write_text(program)
    lines[1] = f"{sys.executable} -S program.py"
    commands.write_text("\n".join(lines) + "\n")
    assert "#SBATCH --output='/" in script.read_text()
    again = _sweep("--slurm", "--run-dir", "all runs")
    assert (again.exit_code, "commands of another job array" in again.output) == (2, True)
    Path("bin").mkdir()
    Path("bin/scontrol").write_text('#!/bin/sh\n[ "$1" = requeue ] && echo "$2" > requeued\n')
    Path("bin/scontrol").chmod(0o755)
    more = {"PATH": f"bin:{os.environ['PATH']}", "SLURM_ARRAY_TASK_ID": "2"}
    task: Any = subprocess.Popen(
        ["bash", str(script)], env=os.environ | more | {"SLURM_ARRAY_JOB_ID": "7"}
    )
    while code == 143 and not Path("began").exists():
        assert task.poll() is None
        time.sleep(0.01)
    if code == 143:
        os.kill(task.pid, signal.SIGTERM)
    assert task.wait(timeout=30) == code
    assert Path("saved").exists() == (code == 143)
    assert (Path("requeued").read_text() if requeued else "") == requeued
    assert Path("requeued").exists() == bool(requeued)
