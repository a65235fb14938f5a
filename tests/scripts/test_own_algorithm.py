"""The worked example of docs/own-algorithm.md, as a reader would use it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.helpers import ROOT, script

PAGE = (ROOT / "docs" / "own-algorithm.md").read_text()
FLAGS = [
    *("--steps", "300", "--warmup-steps", "100", "--updates-per-call", "10", "--no-progress"),
    *("--evaluate-every-steps", "150", "--evaluation-episodes", "1", "--hidden-sizes", "8"),
]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory with the file of the page."""
    (code,) = re.findall(r"```python title=clipped\.py\n(.*?)```", PAGE, re.S)
    (tmp_path / "clipped.py").write_text(code)
    return tmp_path


def test_the_example_is_trained_resumed_and_evaluated(outside: Path) -> None:
    words = re.findall(r"^eagerly train (clipped:Clipped --env .*)$", PAGE, re.M)[0].split()
    trained = script("train.py", *words, *FLAGS, cwd=outside)
    assert trained.returncode == 0, trained.stderr
    assert "finished: 300 steps, 200 updates" in trained.stdout
    resumed = script("train.py", "resume", "runs/clipped", "--steps", "400", cwd=outside)
    assert resumed.returncode == 0, resumed.stderr
    assert script("evaluate.py", "runs/clipped", cwd=outside).returncode == 0
    help_text = script("train.py", "clipped:Clipped", "--help", cwd=outside).stdout
    assert "--pessimism" in help_text
    assert "Weight of the smaller target value" in help_text


def test_it_is_what_it_says(outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from eagerly.agents import agent_class
    from tests.helpers import equal_weights, filled_buffer, spaces, weights_of

    monkeypatch.syspath_prepend(outside)
    kind = agent_class("clipped:Clipped")
    after = {}
    for mode in ("eager", "xla"):
        for pessimism in (0.0, 1.0):
            config = kind.Config(
                pessimism=pessimism, mode=mode, hidden_sizes=(8,), precision="float64"
            )
            agent = kind(*spaces(), config, seed=0)
            agent.train(filled_buffer(), 4)
            after[mode, pessimism] = weights_of(agent)
    for pessimism in (0.0, 1.0):
        for path, values in after["eager", pessimism].items():
            np.testing.assert_allclose(after["xla", pessimism][path], values, 1e-9, 1e-12)
    assert not equal_weights(after["xla", 0.0], after["xla", 1.0])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("clipped:Missing", "cannot be imported: module 'clipped' has no attribute 'Missing'"),
        ("no_such_module:Agent", "cannot be imported: No module named 'no_such_module'"),
        ("clipped:ClippedConfig", "must be a subclass of eagerly.agents.agent.Agent"),
        ("clipped:", "agent must be one of ddpg, td3, or module:Class"),
    ],
)
def test_what_is_no_agent_is_refused(outside: Path, name: str, message: str) -> None:
    done = script("train.py", name, "--env", "Pendulum-v1", cwd=outside)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
