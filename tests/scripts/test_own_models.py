"""The models of docs/own-models.md, used on the command line."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from eagerly import load_policy
from eagerly.scripts import evaluate, train
from tests.helpers import ROOT

PAGE = (ROOT / "docs" / "own-models.md").read_text()
FLAGS = [
    *("--steps", "300", "--warmup-steps", "100", "--updates-per-call", "10", "--no-progress"),
    *("--evaluate-every-steps", "150", "--evaluation-episodes", "1", "--replay-ratio", "0.05"),
    *("--mode", "eager", "--run-dir", "run"),
]


JOINED = PAGE.replace("\\\n", "")
COMMANDS = re.findall(r"^eagerly train (td3 --env Pendulum.*) --steps 10000$", JOINED, re.M)


@pytest.mark.long
@pytest.mark.parametrize("words", COMMANDS)
def test_custom_models_are_trained_resumed_and_evaluated(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "torch" in words:
        pytest.importorskip("torch", reason="PyTorch, an extra, is not installed")
    for name, code in re.findall(r"```python title=(\w+\.py)\n(.*?)```", PAGE, re.S):
        (tmp_path / name).write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    trained = CliRunner().invoke(train.main, [*words.split(), *FLAGS])
    assert trained.exit_code == 0, trained.output
    assert "finished: 300 steps, 10 updates" in trained.output
    resumed = CliRunner().invoke(train.main, ["resume", "run", "--steps", "320"])
    assert resumed.exit_code == 0, resumed.output
    assert CliRunner().invoke(evaluate.main, ["run", "--episodes", "1"]).exit_code == 0
    kernels = load_policy("run").actor._actor.trainable_variables
    assert sum(np.prod(kernel.shape) for kernel in kernels) == 3 * 64 + 64 * 64 + 64 + 129
