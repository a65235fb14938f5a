"""The CPU time to a return is that of the first evaluation that reaches it."""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest

from eagerly.benchmarks.time_to_score import Attempt, measure, report
from tests.helpers import ROOT

RESULTS = ROOT / "benchmarks" / "results"
HEADER = "steps,return_mean\\n"


@dataclass(frozen=True)
class _Program(Attempt):
    """A Python program instead of a training run."""

    program: str

    def command(self, folder: Path, python: Path) -> list[str]:
        return [str(python), "-c", self.program, str(self.evaluations(folder))]


def _measured(
    program: str, folder: Path, budget: float, stopping: threading.Event
) -> dict[str, Any] | None:
    attempt = _Program("sbx", "HalfCheetah-v5", 0, f"import sys, time\n{program}")
    return measure(attempt, folder / "work", Path(sys.executable), budget, stopping)


def _written(text: str) -> str:
    return f"open(sys.argv[1], 'w').write('{HEADER}{text}')"


def test_run_ends_when_the_highest_return_is_reached(tmp_path: Path) -> None:
    program = _written("5000,3100\\n10000,2900\\n15000,9001.5\\n20000,") + "; time.sleep(600)"
    measured = _measured(program, tmp_path, 60, threading.Event())
    assert measured is not None
    assert {score: at["steps"] for score, at in measured["reached"].items()} == {
        "3000.0": 5000,
        "6000.0": 15_000,
        "9000.0": 15_000,
    }
    # The last line is not complete yet, so it does not count.
    assert (measured["steps"], measured["best"]) == (15_000, 9001.5)


def test_run_ends_when_its_cpu_time_is_spent(tmp_path: Path) -> None:
    program = _written("5000,3100\\n10000,2900\\n") + "\nwhile True: pass"
    measured = _measured(program, tmp_path, 0.5, threading.Event())
    assert measured is not None
    assert list(measured["reached"]) == ["3000.0"]
    assert (measured["steps"], measured["best"]) == (10_000, 3100)
    assert measured["cpu_seconds"] >= 0.5


def test_failed_run_is_an_error_with_its_output(tmp_path: Path) -> None:
    with pytest.raises(click.ClickException, match=r"sbx-HalfCheetah-v5-0 failed:\n.*no engine"):
        _measured("sys.exit('no engine')", tmp_path, 60, threading.Event())


def test_stopped_run_gives_no_result(tmp_path: Path) -> None:
    stopping = threading.Event()
    stopping.set()
    assert _measured("time.sleep(600)", tmp_path, 60, stopping) is None


def test_stored_report_is_that_of_the_stored_runs() -> None:
    stored = json.loads((RESULTS / "time_to_score.json").read_text("utf-8"))
    found = stored.pop("runs")
    assert report(found, stored) == (RESULTS / "time_to_score.md").read_text("utf-8")
