"""Runs with n-step returns, prioritized and hindsight replay, combined with other options."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from eagerly import RunError
from tests.eagerly.training.test_trainer import _same
from tests.helpers import ROOT
from tests.small_runs import TrainRun, train_in

REPLAY: dict[str, Any] = {
    "env": "Reach-v0",
    "n_step": 3,
    "sampling": "lap",
    "hindsight": "future",
    "hindsight_goals": 2,
}


def test_prioritized_replay_fixes_updates_per_call(tmp_path: Path) -> None:
    settings = {"sampling": "prioritized", "steps": 120}
    train_in(tmp_path / "run", **settings)
    with pytest.raises(RunError, match=r"--updates-per-call of .* must stay 1, even with"):
        train_in(tmp_path / "run", steps=140, updates_per_call=2, override=True)
    with pytest.raises(RunError, match=r"--replay-capacity of .* must stay 1000000, even with"):
        train_in(tmp_path / "run", steps=140, replay_capacity=2, override=True)
    train_in(tmp_path / "uniform", steps=120)
    train_in(tmp_path / "uniform", steps=140, updates_per_call=2, override=True)


def test_the_documented_sampler_resumes_bit_for_bit(
    train: TrainRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "replay.md").read_text()
    blocks = [block.split("```")[0] for block in page.split("```python\n")]
    (tmp_path / "ranked.py").write_text(next(b for b in blocks if "class RankSampler" in b))
    monkeypatch.syspath_prepend(tmp_path)
    settings = {"agent": "ranked:Ranked", "steps": 150, "warmup_steps": 40, "updates_per_call": 2}
    settings |= {"replay_ratio": 0.05, "evaluate_every_steps": 150}
    straight = train("straight", **settings)
    assert straight.updates == 4
    train("parts", **settings | {"steps": 97})
    _same(train("parts", steps=150), straight)


def test_the_success_rate_is_in_the_evaluation_table(train: TrainRun) -> None:
    trainer = train(**REPLAY, evaluation_episodes=4, steps=150)
    with trainer.run.evaluations_path.open() as file:
        rates = [float(row["success_rate"]) for row in csv.DictReader(file)]
    assert set(rates) <= {0, 0.25, 0.5, 0.75, 1}


def test_environments_that_do_not_support_hindsight_are_rejected(train: TrainRun) -> None:
    with pytest.raises(
        RunError, match="hindsight has an effect only for dictionary observations in which"
    ):
        train(hindsight="future")
    with pytest.raises(RunError, match=r"arrays; got Dict\('achieved_goal'"):
        train("ignored", **REPLAY | {"ignore_entries": "desired_goal"})
    with pytest.raises(RunError, match=r"the reward was .*, but compute_reward"):
        train(**REPLAY | {"env": moved_rewards})


def moved_rewards(**kwargs: Any) -> Any:
    return gymnasium.wrappers.TransformReward(gymnasium.make("Reach-v0"), lambda r: r + 1.0)
