"""The worked example of docs/own-algorithm.md, as a reader would use it."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from eagerly import Trainer, open_run
from eagerly.agents import agent_class
from eagerly.scripts import train
from tests.helpers import (
    ROOT,
    equal_weights,
    filled_buffer,
    script,
    small_agent,
    spaces,
    weights_of,
)
from tests.small_runs import SMALL

PAGE = (ROOT / "docs" / "own-algorithm.md").read_text()
FLAGS = [
    *("--steps", "300", "--warmup-steps", "100", "--updates-per-call", "10", "--no-progress"),
    *("--evaluate-every-steps", "150", "--evaluation-episodes", "1", "--hidden-sizes", "8"),
    *("--replay-ratio", "0.1", "--mode", "eager"),
]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory with the files of the page."""
    for name, code in re.findall(r"```python title=(\w+\.py)\n(.*?)```", PAGE, re.S):
        (tmp_path / name).write_text(code)
    return tmp_path


@pytest.mark.long
def test_the_example_is_trained_resumed_and_evaluated(outside: Path) -> None:
    words = re.findall(r"^eagerly train (clipped:Clipped --env .*)$", PAGE, re.M)[0].split()
    trained = script("train.py", *words, *FLAGS, cwd=outside)
    assert trained.returncode == 0, trained.stderr
    assert "finished: 300 steps, 20 updates" in trained.stdout
    resumed = script("train.py", "resume", "runs/clipped", "--steps", "400", cwd=outside)
    assert resumed.returncode == 0, resumed.stderr
    assert script("evaluate.py", "runs/clipped", cwd=outside).returncode == 0


def test_its_settings_are_flags(outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(outside)
    shown = CliRunner().invoke(train.main, ["clipped:Clipped", "--help"])
    assert "--pessimism" in shown.output
    assert "Weight of the smaller target value" in shown.output


def test_a_variant_of_td3_is_td3_but_for_its_target(
    outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(outside)
    after = {}
    for name, settings in (
        ("td3", {}),
        ("blended:Blended", {"pessimism": 1.0}),
        ("blended:Blended", {"pessimism": 0.5}),
    ):
        agent = small_agent(name, precision="float64", **settings)
        agent.train(filled_buffer(), 5)
        after[settings.get("pessimism")] = weights_of(agent)
    assert equal_weights(after[None], after[1.0])
    assert not equal_weights(after[None], after[0.5])


def test_the_episodic_one_is_updated_at_ends_of_episodes_and_its_target_is_evaluated(
    outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(outside)
    settings = {"env": "Terminating-v0", "steps": 8, "evaluate_every_steps": 5, "warmup_steps": 2}
    run = open_run(outside / "run", "episodic:Episodic", SMALL | settings)
    with Trainer(run) as trainer:
        trainer.train()
    assert trainer.updates == 6  # of two episodes of three steps
    with run.evaluations_path.open() as file:
        (row,) = csv.DictReader(file)
    assert (row["steps"], row["return_mean"], row["target_return_mean"]) == ("5", "3.0", "3.0")


def test_metrics_that_come_and_go_are_named() -> None:
    class Silent(agent_class("ddpg")):
        def update(self, batch: Any, random: Any, phase: Any) -> Any:
            metrics, per_row = super().update(batch, random, phase)
            if int(phase.update) == 2:
                del metrics["losses/actor"]
            return metrics, per_row

    agent = Silent(*spaces(), Silent.Config(hidden_sizes=(8,), mode="eager"), seed=0)
    with pytest.raises(ValueError, match=r"the same in all updates.*losses/actor"):
        agent.train(filled_buffer(), 3)


def test_it_is_what_it_says(outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_what_is_no_agent_is_refused(
    outside: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    monkeypatch.syspath_prepend(outside)
    done = CliRunner().invoke(train.main, [name, "--env", "Pendulum-v1"])
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())
