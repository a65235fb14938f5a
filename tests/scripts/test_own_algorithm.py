"""The code of docs/own-algorithm.md and docs/algorithm-interface.md, as readers would use it."""

from __future__ import annotations

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
    python,
    script,
    small_agent,
    spaces,
)
from tests.small_runs import SMALL

PAGE = (ROOT / "docs" / "own-algorithm.md").read_text()
INTERFACE = (ROOT / "docs" / "algorithm-interface.md").read_text()
FLAGS = [
    *("--steps", "300", "--warmup-steps", "100", "--updates-per-call", "10", "--no-progress"),
    *("--evaluate-every-steps", "150", "--evaluation-episodes", "1", "--hidden-sizes", "8"),
    *("--replay-ratio", "0.1", "--mode", "eager"),
]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Returns a directory with the code files shown in both pages."""
    for name, code in re.findall(r"```python title=(\w+\.py)\n(.*?)```", PAGE + INTERFACE, re.S):
        (tmp_path / name).write_text(code)
    return tmp_path


@pytest.mark.long
def test_the_example_is_trained_resumed_and_evaluated(outside: Path) -> None:
    words = re.findall(r"^eagerly train (redq:REDQ --env (?:.*\\\n)*.*)$", PAGE, re.M)[0]
    words = words.replace("\\\n", " ").split()
    trained = script("train.py", *words, *FLAGS, cwd=outside)
    assert trained.returncode == 0, trained.stderr
    assert "finished: 300 steps, 20 updates" in trained.stdout
    resumed = script("train.py", "resume", "runs/redq", "--steps", "400", cwd=outside)
    assert resumed.returncode == 0, resumed.stderr
    assert script("evaluate.py", "runs/redq", cwd=outside).returncode == 0


def test_settings_of_a_custom_agent_are_flags(
    outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(outside)
    shown = CliRunner().invoke(train.main, ["redq:REDQ", "--help-all"])
    assert "--subset-size" in shown.output
    assert "Critics drawn at random for each update's target" in " ".join(shown.output.split())


def test_the_page_s_test_of_a_loss_passes(outside: Path) -> None:
    done = python("test_huber.py", cwd=outside)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("critic loss ")


@pytest.mark.parametrize("name", ["redq.py", "huber.py"])
def test_the_page_shows_the_tested_code(outside: Path, name: str) -> None:
    assert (outside / name).read_text() == (ROOT / "tests" / "algorithms" / name).read_text()


def test_a_stochastic_policy_collects_and_is_saved(
    outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(outside)
    agent, rows = small_agent("sampled:SampledTD3"), np.zeros((3, 4))
    behavior, other = agent.behavior(), agent.behavior()
    drawn = behavior.act(rows)
    assert len(np.unique(drawn, axis=0)) == 3
    assert len(np.unique(agent.act(rows), axis=0)) == 1
    behavior.observe(np.zeros(3), np.zeros(3, bool))
    other.restore(behavior.state())
    np.testing.assert_array_equal(other.act(rows), behavior.act(rows))
    assert agent.train(filled_buffer(), 2)["policy/std"].shape == (2,)
    assert agent.modules["log_std"]() != -1.0


def test_a_third_network_learns_and_is_saved(
    outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(outside)
    one, same = (small_agent("dynamics:WithDynamics") for _ in range(2))
    assert equal_weights(
        *({n: v for n, v in a.get_weights().items() if "dynamics" not in n} for a in (one, same))
    )
    kernels = [agent.modules["dynamics"].network.get_weights() for agent in (one, same)]
    for first, second in zip(*kernels, strict=True):  # both agents have the same seed
        np.testing.assert_array_equal(first, second)
    losses = one.train(filled_buffer(), 40)["losses/dynamics"]
    assert losses[-10:].mean() < losses[:10].mean()
    assert {"dynamics", "dynamics_optimizer"} <= one.checkpoint.groups.keys()


def test_a_variable_assigned_in_updates_is_saved(
    outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(outside)
    agent = small_agent("centered:CenteredTD3")
    means = agent.train(filled_buffer(), 3)["rewards/mean"]
    assert len(np.unique(means)) == 3
    assert agent.get_weights()["mean_reward/mean_reward"] == means[-1]


def test_critics_with_batch_normalization_learn_without_bias(
    outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(outside)
    agent = small_agent("normed:NormedTD3", hidden_sizes=(16, 16))
    assert agent.critic(np.zeros((5, 4)), np.zeros((5, 2))).shape == (2, 5)
    before = agent.get_weights()
    agent.train(filled_buffer(), 2)
    after = agent.get_weights()
    layers = {name.split("/", 1)[1] for name in before if name.startswith("critic/")}
    norms = {f"norm_{i}/{part}" for i in range(2) for part in ("gamma", "beta")}
    averages = {f"norm_{i}/moving_{part}" for i in range(2) for part in ("mean", "variance")}
    dense = {"hidden_0/kernel", "hidden_1/kernel", "value/kernel", "value/bias"}
    assert {"/".join(name.split("/")[-2:]) for name in layers} == norms | averages | dense
    for name, values in before.items():
        assert not np.array_equal(values, after[name]), name


def test_the_episodic_agent_is_updated_at_episode_ends(
    outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(outside)
    settings = {"env": "Terminating-v0", "steps": 8, "evaluate_every_steps": 5, "warmup_steps": 2}
    settings |= {"replay_ratio": 2.0}
    run = open_run(outside / "run", "episodic:Episodic", SMALL | settings)
    with Trainer(run) as trainer:
        trainer.train()
    # The two episodes have 6 steps in total. Each of the 4 steps after the warm-up requires two
    # updates.
    assert trainer.updates == 8


def test_metrics_that_differ_between_updates_are_named() -> None:
    class Silent(agent_class("ddpg")):
        def update(self, batch: Any, random: Any, phase: Any) -> Any:
            metrics, per_row = super().update(batch, random, phase)
            if int(phase.update) == 2:
                del metrics["losses/actor"]
            return metrics, per_row

    agent = Silent(*spaces(), Silent.Config(hidden_sizes=(8,), mode="eager"), seed=0)
    with pytest.raises(ValueError, match=r"the same names in all updates.*losses/actor"):
        agent.train(filled_buffer(), 3)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("redq:Missing", "cannot be imported: module 'redq' has no attribute 'Missing'"),
        ("json:Agent", "agent json:Agent cannot be imported: json is part of the standard library"),
        ("no_such_module:Agent", "No module named 'no_such_module'. Install it, run from"),
        ("redq:REDQConfig", "must be a subclass of eagerly.agents.agent.Agent"),
        ("redq:", "agent must be one of ddpg, td3, td3_bc, td7, or module:Class"),
    ],
)
def test_invalid_agent_names_are_rejected(
    outside: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    monkeypatch.syspath_prepend(outside)
    done = CliRunner().invoke(train.main, [name, "--env", "Pendulum-v1"])
    assert done.exit_code == 2
    assert message in (told := " ".join(done.output.split()))
    assert ("PYTHONPATH" in told) == ("no_such_module" in name)
