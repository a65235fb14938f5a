"""The command `eagerly`: its parts, what it prints to be typed next, the list of runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eagerly import Trainer, open_run
from eagerly.scripts import runs
from eagerly.scripts.main import main
from eagerly.storage.listing import runs_below

EAGERLY = Path(sys.executable).with_name("eagerly")
SMALL = {
    "env": "Pendulum-v1",
    "warmup_steps": 100,
    "evaluate_every_steps": 100,
    "evaluation_episodes": 1,
    "hidden_sizes": [8],
    "mode": "eager",
    "replay_ratio": 0.1,
    "updates_per_call": 10,
}


def _eagerly(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PATH": f"{EAGERLY.parent}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        ["eagerly", *words], cwd=folder, capture_output=True, text=True, env=environment
    )


def _listed(*words: str) -> Result:
    return CliRunner().invoke(runs.main, words)


def test_a_run_is_trained_continued_evaluated_plotted_and_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = "--env Pendulum-v1 --steps 300 --warmup-steps 100 --evaluate-every-steps 100"
    flags += " --hidden-sizes 8 --mode eager --updates-per-call 10 --replay-ratio 0.1"
    flags += " --run-dir runs/x --no-progress"
    trained = _eagerly(tmp_path, "train", "td3", *flags.split())
    assert trained.returncode == 0, trained.stderr
    assert re.search(
        r"preset +Pendulum-v1: actor_learning_rate 0\.001, .*; given: warmup_steps 100",
        trained.stdout,
    )
    assert "eagerly resume runs/x --steps 600" in trained.stdout
    assert "eagerly evaluate runs/x" in trained.stdout
    longer = _eagerly(tmp_path, "resume", "runs/x", "--steps", "400", "--no-progress")
    assert longer.returncode == 0, longer.stderr
    assert "continues at step 300" in longer.stdout
    monkeypatch.chdir(tmp_path)
    evaluated, plotted, listed = (
        CliRunner().invoke(main, words.split())
        for words in ("evaluate runs/x --episodes 1", "plot runs -o x.svg", "runs")
    )
    assert "return" in evaluated.output
    assert (plotted.exit_code, Path("x.svg").exists()) == (0, True)
    listed = listed.output.splitlines()
    assert listed[1].split()[:6] == ["runs/x", "Pendulum-v1", "td3", "0", "400", "400"]
    assert listed[1].endswith("finished")


def test_help_names_every_command() -> None:
    result = CliRunner().invoke(main, ["--help"])
    for name in ("train", "resume", "evaluate", "export", "plot", "runs", "completion"):
        assert f"  {name} " in result.output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands(shell: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert "_EAGERLY_COMPLETE" in result.output


@pytest.mark.long
def test_completion_knows_commands_and_agents(tmp_path: Path) -> None:
    def completed(words: str, number: int) -> list[str]:
        environment = os.environ | {"COMP_WORDS": words, "COMP_CWORD": str(number)}
        environment["_EAGERLY_COMPLETE"] = "bash_complete"
        done = subprocess.run([EAGERLY], capture_output=True, text=True, env=environment)
        return [line.partition(",")[2] for line in done.stdout.splitlines()]

    assert completed("eagerly r", 1) == ["resume", "runs"]
    assert "td3" in completed("eagerly train ", 2)
    assert "--batch-size" in completed("eagerly train td3 --batch", 3)


def test_states_of_runs(tmp_path: Path) -> None:
    for name, steps in (("short", 200), ("long", 400)):
        with Trainer(open_run(tmp_path / "runs" / name, "td3", SMALL | {"steps": steps})) as made:
            made.train()
    planned = open_run(tmp_path / "runs" / "planned", "ddpg", SMALL)
    planned.write()
    (tmp_path / "runs" / "short" / "config.json").write_text("{")
    (tmp_path / "runs" / "short" / "evaluations.csv").write_text("steps\nnonsense\n")
    states = {run.path.name: run.state for run in runs_below(tmp_path / "runs")}
    assert states["short"] == "damaged"
    assert states["long"] == "finished"
    assert states["planned"] == "running"  # this process holds its lock
    result = _listed(str(tmp_path / "runs"), "--sort", "best")
    assert result.exit_code == 0
    assert [line.split()[-1] for line in result.output.splitlines()][1:] == [
        "finished",
        "running",
        "damaged",
    ]
    planned.unlock()
    assert runs_below(tmp_path / "runs" / "planned")[0].state == "not begun"


def test_no_runs_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = _listed()
    assert (result.exit_code, result.output.strip()) == (0, "no runs in runs")
