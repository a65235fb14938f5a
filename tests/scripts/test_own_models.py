"""The models of docs/own-models.md on the command line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from eagerly import load_policy
from eagerly.scripts import evaluate, train
from tests.helpers import ROOT

PAGE = (ROOT / "docs" / "own-models.md").read_text()
FLAGS = [
    *("--steps", "300", "--warmup-steps", "100", "--updates-per-call", "10", "--no-progress"),
    *("--evaluate-every-steps", "150", "--evaluation-episodes", "1", "--replay-ratio", "0.1"),
    *("--mode", "eager", "--run-dir", "run"),
]


def test_they_are_trained_resumed_and_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, code in re.findall(r"```python title=(\w+\.py)\n(.*?)```", PAGE, re.S):
        (tmp_path / name).write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (words,) = re.findall(r"^eagerly train (.*) --steps 10000$", PAGE, re.M)
    trained = CliRunner().invoke(train.main, [*words.split(), *FLAGS])
    assert trained.exit_code == 0, trained.output
    assert "finished: 300 steps, 20 updates" in trained.output
    resumed = CliRunner().invoke(train.main, ["resume", "run", "--steps", "320"])
    assert resumed.exit_code == 0, resumed.output
    assert CliRunner().invoke(evaluate.main, ["run", "--episodes", "1"]).exit_code == 0
    kernels = load_policy("run")._act._actor.trainable_variables
    assert [kernel.shape for kernel in kernels][::2] == [(3, 64), (64, 64), (64, 1)]
