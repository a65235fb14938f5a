"""Equal runs have equal digests. If a part of a run differs, its digest differs, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eagerly.errors import RunError
from eagerly.storage.digests import curves, digests
from tests.small_runs import TrainRun, train_in

# Maps a setting to a new value and to the parts that must then change. Other parts may change, too.
TOUCHED: dict[str, tuple[Any, set[str]]] = {
    "evaluation_seed": (5, {"evaluations.csv", "TensorBoard: all scalars"}),
    "tau": (0.5, {"actor target", "critic target", "actor optimizer", "critic optimizer"}),
    "seed": (1, {"actor", "critic", "replay buffer", "policies", "collector"}),
    "env_kwargs": (
        {"max_episode_steps": 30, "g": 5.0},
        {"replay buffer", "TensorBoard: training returns"},
    ),
}


# These runs make three updates and one evaluation, and complete several episodes.
BRIEF: dict[str, Any] = {
    "steps": 100,
    "warmup_steps": 40,
    "replay_ratio": 0.06,
    "evaluate_every_steps": 80,
    "checkpoint_every_steps": 60,
}
SHORT = {"env_kwargs": {"max_episode_steps": 30}, "hidden_sizes": (8,)}


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    path = tmp_path_factory.mktemp("one") / "run"
    train_in(path, **BRIEF, **SHORT)
    return digests(path)


@pytest.mark.parametrize("name", TOUCHED)
def test_every_part_that_differs_has_another_digest(
    train: TrainRun, tmp_path: Path, one: dict[str, str], name: str
) -> None:
    value, parts = TOUCHED[name]
    train(**BRIEF | SHORT | {name: value})
    other = digests(tmp_path / "run")
    assert {part for part in one if one[part] != other[part]} >= parts


def test_the_same_run_has_the_same_digests(
    train: TrainRun, tmp_path: Path, one: dict[str, str]
) -> None:
    train(**BRIEF, **SHORT, collectors="here", keep_checkpoints=1)
    assert digests(tmp_path / "run") == one


def test_a_point_that_was_written_twice_changes_the_digest(train: TrainRun, tmp_path: Path) -> None:
    from eagerly.storage.config import RunConfig
    from eagerly.storage.event_log import EventLog
    from eagerly.training.summaries import Summaries

    train(steps=200)
    before = digests(tmp_path / "run")
    summaries = Summaries(RunConfig(env="Pendulum-v1"))
    summaries.log = EventLog(tmp_path / "run")
    summaries._scalars({"losses/critic": 0.0}, 150)
    summaries.log.close()
    assert len(curves(tmp_path / "run")["losses/critic", 150]) == 2
    assert (
        digests(tmp_path / "run")["TensorBoard: all scalars"] != before["TensorBoard: all scalars"]
    )


def test_a_directory_without_a_run_has_no_digests(train: TrainRun, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="does not exist"):
        digests(tmp_path / "run")
