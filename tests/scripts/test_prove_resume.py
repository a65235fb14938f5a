"""The proof that anyone can repeat, in small."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers import script

FLAGS = [
    *("--env", "Pendulum-v1", "--steps", "600", "--warmup-steps", "300", "--mode", "eager"),
    *("--hidden-sizes", "16,16", "--evaluate-every-steps", "250", "--replay-ratio", "0.2"),
    *("--summarize-every-steps", "100"),
]


@pytest.mark.long
def test_a_run_that_is_killed_twice_equals_one_that_was_not(tmp_path: Path) -> None:
    more = ["--kills", "2", "--kill-seed", "1", "--run-dir", "proof", "--json", "proof.json"]
    process = script("prove_resume.py", "td3", *FLAGS, *more, cwd=tmp_path)
    assert process.returncode == 0, process.stdout + process.stderr
    assert "All parts are equal." in process.stdout
    assert "DIFFERENT" not in process.stdout
    result = json.loads((tmp_path / "proof.json").read_text())
    assert (result["equal"], result["points_twice"], len(result["kills"])) == (True, [0, 0], 2)
    assert {"actor", "critic target", "replay buffer", "evaluations.csv"} <= result[
        "digests"
    ].keys()
