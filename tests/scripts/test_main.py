"""The command `eagerly`: its subcommands, the commands that it prints, and the list of runs."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from eagerly import Trainer, open_run
from eagerly.scripts import runs, train
from eagerly.scripts.commands import Command
from eagerly.scripts.main import main
from eagerly.scripts.output import echo
from eagerly.storage.listing import runs_below
from tests.helpers import edit_sealed, script
from tests.small_runs import SMALL as SMALL_RUN

EAGERLY = Path(sys.executable).with_name("eagerly")
SMALL = {
    "env": "Pendulum-v1",
    "warmup_steps": 400,
    "evaluate_every_steps": 100,
    "evaluation_episodes": 1,
    "hidden_sizes": [8],
    "mode": "eager",
}


def _listed(*words: str) -> Result:
    return CliRunner().invoke(runs.main, words)


def _rows(run: Path) -> list[dict[str, str]]:
    with (run / "evaluations.csv").open() as file:
        return list(csv.DictReader(file))


def _replay(run: Path) -> bytes:
    segments = sorted((run / "replay").iterdir())
    return np.concatenate([np.load(path, allow_pickle=False) for path in segments]).tobytes()


def test_a_run_is_interrupted_resumed_evaluated_plotted_and_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{EAGERLY.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL")
    flags = "--env InvertedPendulum-v5 --steps 1500 --warmup-steps 200 --checkpoint-every-steps 500"
    flags += " --evaluate-every-steps 300 --evaluation-episodes 2 --hidden-sizes 8 --mode eager"
    flags += " --batch-size 16 --updates-per-call 5 --replay-ratio 0.01 --no-progress"
    words = ["train", "td3", *flags.split()]
    # The command runs in a new session, so that the test can send Ctrl-C to all its processes.
    there: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = ["eagerly", *words, "--run-dir", "runs/pole"]
    process = subprocess.Popen(command, **there, start_new_session=True)
    run = Path("runs/pole")
    deadline = time.monotonic() + 120
    while not (run / "evaluations.csv").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    loading = "loading TensorFlow ...\n"
    assert (process.returncode, errors) == (130, loading)
    assert re.search(r"preset +.*; overridden: warmup_steps 200", output)
    (step,) = re.findall(r"stopped by SIGINT at step (\d+)", output)
    assert 300 <= int(step) < 1500

    (printed,) = re.findall(r"^resume    (eagerly resume runs/pole)$", output, re.M)
    again = subprocess.run(printed.split(), **there)
    assert (again.returncode, again.stderr) == (0, loading)
    assert f"resumes at step {step}, up to step 1500" in again.stdout
    assert "finished: 1500 steps, 10 updates" in again.stdout
    assert "eagerly resume runs/pole --steps 3000" in again.stdout
    assert "eagerly evaluate runs/pole" in again.stdout
    assert [int(row["steps"]) for row in _rows(run)] == [300, 600, 900, 1200, 1500]

    trained = [row for row in _rows(run) if int(row["updates"])]
    best = max(trained, key=lambda row: float(row["return_mean"]))
    done = script("evaluate.py", "runs/pole", "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    figures = json.loads(done.stdout)
    assert figures["step"] == int(best["steps"])
    assert figures["return_mean"] == float(best["return_mean"])

    evaluated, plotted, listed = (
        CliRunner().invoke(main, words.split())
        for words in ("evaluate runs/pole --episodes 1", "plot runs -o x.svg", "runs")
    )
    assert "return" in evaluated.output
    assert (plotted.exit_code, Path("x.svg").exists()) == (0, True)
    (line,) = listed.output.splitlines()[1:]
    assert line.split()[:6] == ["runs/pole", "InvertedPendulum-v5", "td3", "0", "1,500", "1,500"]
    assert line.endswith("finished")

    # The resumed run is bit-identical to one that was never interrupted.
    straight = Path("straight")
    result = CliRunner().invoke(main, [*words, "--run-dir", str(straight)])
    assert result.exit_code == 0, result.output
    for name in ("networks.index", "networks.data-00000-of-00001", "policies.npz", "collector.npz"):
        (one,), (other,) = (path.glob(f"checkpoints/*1500-*/{name}") for path in (run, straight))
        assert one.read_bytes() == other.read_bytes(), name
    assert (run / "evaluations.csv").read_bytes() == (straight / "evaluations.csv").read_bytes()
    assert _replay(run) == _replay(straight)


def test_help_lists_every_command() -> None:
    result = CliRunner().invoke(main, ["--help"])
    for name in ("train", "resume", "evaluate", "export", "plot", "runs", "completion"):
        assert f"  {name} " in result.output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed_for_every_shell(shell: str) -> None:
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

    assert completed("eagerly r", 1) == ["resume", "record", "report", "runs"]
    assert "td3" in completed("eagerly train ", 2)
    assert "--batch-size" in completed("eagerly train td3 --batch", 3)


def test_the_list_shows_the_state_of_each_run(tmp_path: Path) -> None:
    for name, steps in (("short", 200), ("long", 400)):
        with Trainer(open_run(tmp_path / "runs" / name, "td3", SMALL | {"steps": steps})) as made:
            made.train()
    planned = open_run(tmp_path / "runs" / "planned", "ddpg", SMALL)
    planned.write()
    (tmp_path / "runs" / "short" / "config.json").write_text("{")
    (tmp_path / "runs" / "short" / "evaluations.csv").write_text("steps\nnonsense\n")
    found = {run.path.name: run for run in runs_below(tmp_path / "runs")}
    assert found["short"].state == "damaged"
    assert "evaluations.csv is damaged and cannot be read" in found["short"].problem
    assert found["long"].state == "finished"
    assert found["planned"].state == "running"  # the test process holds the lock of this run
    result = _listed(str(tmp_path / "runs"), "--sort", "best")
    assert result.exit_code == 0
    _, *lines = result.output.splitlines()
    assert [line.split()[-1] for line in lines[:2]] == ["finished", "running"]
    assert lines[2].endswith(
        "  damaged: " + found["short"].problem.removeprefix(f"{found['short'].path}/")
    )
    planned.unlock()
    # A killed run discards the evaluations after its newest checkpoint when it is resumed.
    table = tmp_path / "runs" / "long" / "evaluations.csv"
    last = table.read_text().splitlines()[-1]
    with table.open("a") as file:
        file.write(",".join(["500", "1", *last.split(",")[2:]]) + "\n")
    (planned.path / "evaluations.csv").write_text("steps,updates,return_mean\n100,1,9999.0\n")
    listed = json.loads(_listed(str(tmp_path / "runs"), "--json", "--sort", "steps").output)
    assert [(run["state"], run["steps"]) for run in listed] == [
        ("stopped", 400),
        ("not begun", 0),
        ("damaged", 0),
    ]
    assert listed[0]["run_dir"] == str(tmp_path / "runs" / "long")
    assert [run["score"] for run in listed] == [found["long"].score, None, None]
    assert _listed(str(tmp_path), "--env", "Ant-v5").output == f"no runs of Ant-v5 in {tmp_path}\n"


@pytest.mark.parametrize(
    "given",
    [
        {**SMALL_RUN, "env_kwargs": {"g": 9.0}, "hidden_sizes": ()},
        {"env": "Pendulum-v1", "hardware": True, "policy_lag": 0},
        {**SMALL_RUN, "exploration": "ornstein_uhlenbeck", "ou_theta": 0.3},
    ],
)
def test_the_printed_command_trains_the_same_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    open_run(Path("run"), "td3", {**given, "preset": "environment", "seed": 3}).write()
    if "ou_theta" in given:  # then an override made it ineffective
        edit_sealed(Path("run/config.json"), lambda d: d["settings"].update(exploration="gaussian"))
    printed = CliRunner().invoke(runs.main, ["--command", "run"]).output
    words = shlex.split(printed)
    again = CliRunner().invoke(train.main, [*words[words.index("td3") :], "--print-config"])
    saved = CliRunner().invoke(train.main, ["td3", "--run-dir", "run", "--print-config"])
    assert again.exit_code == 0
    assert again.output == saved.output
    for name, value in (("env", lambda: None), ("wrapper", (lambda env: env,))):
        open_run(Path(name), "td3", {"env": "Pendulum-v1", name: value}).write()
        result = CliRunner().invoke(runs.main, ["--command", name])
        assert result.exit_code == 1
        expected = f"with a factory for {name}, which the command line cannot pass"
        assert expected in result.output


def test_any_encoding_of_standard_output_works(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="iso8859-2"))
    Command("show", callback=lambda: echo("3 ± 1")).main([], standalone_mode=False)
    sys.stdout.flush()
    assert written.getvalue() == b"3 \\xb1 1\n"


def test_an_empty_list_of_runs_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = _listed()
    assert (result.exit_code, result.output.strip()) == (0, "no runs in runs")
