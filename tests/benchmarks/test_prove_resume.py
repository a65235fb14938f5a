"""The benchmark that proves exact resuming, with small networks and custom environments."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.helpers import ROOT, python

FLAGS = [
    *("--steps", "600", "--warmup-steps", "300", "--mode", "eager"),
    *("--hidden-sizes", "16,16", "--evaluate-every-steps", "250", "--replay-ratio", "0.2"),
    *("--summarize-every-steps", "100"),
]


@pytest.fixture(autouse=True)
def _environments_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.mark.long
def test_a_run_that_is_killed_twice_equals_an_uninterrupted_run(tmp_path: Path) -> None:
    more = [
        "--env",
        "tests.toys:Long-v0",
        "--kills",
        "2",
        "--kill-seed",
        "1",
        "--run-dir",
        "proof",
        "--json",
        "proof.json",
    ]
    process = python("-m", "eagerly.benchmarks.prove_resume", "td3", *FLAGS, *more, cwd=tmp_path)
    assert process.returncode == 0, process.stdout + process.stderr
    assert "All parts are equal." in process.stdout
    assert "DIFFERENT" not in process.stdout
    result = json.loads((tmp_path / "proof.json").read_text())
    assert (result["equal"], result["points_twice"], len(result["kills"])) == (True, [0, 0], 2)
    assert {"actor", "critic target", "replay buffer", "evaluations.csv"} <= result[
        "digests"
    ].keys()


@pytest.mark.long
def test_runs_that_differ_end_with_exit_code_1_and_are_kept(tmp_path: Path) -> None:
    more = ["--env", "tests.toys:Noisy-v0", "--kills", "0", "--run-dir", "proof"]
    process = python("-m", "eagerly.benchmarks.prove_resume", "td3", *FLAGS, *more, cwd=tmp_path)
    assert process.returncode == 1
    assert "THE RUNS DIFFER." in process.stdout
    assert re.search(r"\| replay buffer \|.*\| DIFFERENT \|", process.stdout)
    assert "the runs differ; both are in proof" in process.stderr
    assert {path.name for path in (tmp_path / "proof").iterdir()} >= {"straight", "killed"}
