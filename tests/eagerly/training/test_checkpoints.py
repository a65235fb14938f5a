"""Checkpoints: files that are written and kept, and recovery from damaged checkpoints."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eagerly
from eagerly import Trainer, open_run
from eagerly.errors import RunError
from eagerly.storage.checkpoint_reader import newest_checkpoint
from eagerly.storage.evaluations import read_results
from eagerly.storage.files import RunFiles
from tests.helpers import equal_weights, weights_of
from tests.small_runs import TrainRun, logged, train_in


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def test_a_checkpoint_writes_only_new_data_and_the_newest_ones_are_kept(
    train: TrainRun, tmp_path: Path
) -> None:
    train(steps=300)
    run = tmp_path / "run"
    assert names(run / "checkpoints") == [
        "000000000200-000000000001",
        "000000000300-000000000002",
    ]
    assert names(run / "replay") == [
        "000000000000-000000000100.npy",
        "000000000100-000000000200.npy",
        "000000000200-000000000300.npy",
    ]
    before = {path: path.stat().st_mtime_ns for path in (run / "replay").iterdir()}
    train(steps=330)
    assert names(run / "replay")[-1] == "000000000300-000000000330.npy"
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())


def test_all_parts_are_durable_before_the_manifest(
    train: TrainRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def noted(name: str) -> None:
        original = getattr(RunFiles, name)

        def call(files: RunFiles, path: str = "", *given: Any, **more: Any) -> Any:
            found = original(files, path, *given, **more)
            made.append(f"{name} {path}")
            return found

        monkeypatch.setattr(RunFiles, name, call)

    for name in ("sync", "sync_folder", "write"):
        noted(name)
    train(steps=20)
    folder = "checkpoints/000000000020-000000000000"
    end = made.index(f"write {folder}/manifest.json")
    synced = {
        *(f"sync {folder}/networks.{part}" for part in ("index", "data-00000-of-00001")),
        *(f"sync_folder {path}" for path in ("", "checkpoints", "replay", folder)),
    }
    assert synced <= {*made[:end]}
    assert "sync_folder checkpoints" in made[end:]


def test_overwritten_transitions_are_removed_once_no_checkpoint_needs_them(
    train: TrainRun, tmp_path: Path
) -> None:
    train(steps=400, replay_capacity=150)
    # The checkpoint at step 300 needs transitions 150 to 300. The one at step 400 needs 250 to 400.
    assert names(tmp_path / "run" / "replay") == [
        "000000000100-000000000200.npy",
        "000000000200-000000000300.npy",
        "000000000300-000000000400.npy",
    ]


def test_a_run_directory_holds_the_documented_files(train: TrainRun, tmp_path: Path) -> None:
    train(steps=200)
    run = tmp_path / "run"
    assert [n for n in names(run) if not n.startswith("events.out")] == [
        "checkpoints",
        "config.json",
        "evaluations.csv",
        "lock",
        "replay",
    ]
    assert names(run / "checkpoints" / "000000000200-000000000001") == [
        "collector.npz",
        "manifest.json",
        "networks.data-00000-of-00001",
        "networks.index",
        "policies.npz",
    ]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with two checkpoints; tests modify only copies of it."""
    path = tmp_path_factory.mktemp("finished") / "run"
    train_in(path, steps=200, env="Long-v0")
    return path


@pytest.mark.parametrize(
    "part",
    [
        "networks.data-00000-of-00001",
        "networks.index",
        "collector.npz",
        "manifest.json",
        "policies.npz",
    ],
)
@pytest.mark.parametrize("damage", ["cut", "flip", "gone"])
def test_a_damaged_checkpoint_is_skipped(
    train: TrainRun, finished: Path, tmp_path: Path, part: str, damage: str
) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    path = run / "checkpoints" / "000000000200-000000000001" / part
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(content[: len(content) // 2] if damage == "cut" else content)
    with logged() as lines:
        saved = newest_checkpoint(run)
    assert saved is not None
    assert saved.manifest.steps == 100
    if part == "manifest.json" and damage == "gone":
        assert lines == []  # without a manifest, the checkpoint counts as unpublished
    else:
        (line,) = lines
        assert "000000000200-000000000001 is damaged" in line
    if part.startswith("networks.data"):  # one part suffices: resuming is the same for all
        trainer = train(steps=210)
        assert (trainer.steps, trainer.buffer.added, trainer.lines) == (210, 210, lines)


def test_the_total_cannot_be_less_than_the_steps_of_a_run(finished: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    before = (run / "config.json").read_bytes()
    with pytest.raises(RunError, match=r"already has 200 steps: --steps .* least 200; got 150"):
        eagerly.resume(run, steps=150)
    assert (run / "config.json").read_bytes() == before


@pytest.mark.parametrize("damaged", ["replay/*", "checkpoints/*/manifest.json"])
def test_a_run_without_an_intact_checkpoint_is_rejected_and_unchanged(
    train: TrainRun, finished: Path, tmp_path: Path, damaged: str
) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    for path in run.glob(damaged):
        path.write_bytes(b"")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(RunError, match="has no intact checkpoint"):
        train(steps=210)
    after = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert after | {run / "lock": b""} == before | {run / "lock": b""}


@pytest.mark.parametrize("damaged", ["events.out.tfevents.*", "evaluations.csv"])
def test_damaged_curves_are_reported_and_do_not_affect_the_run(
    train: TrainRun, finished: Path, tmp_path: Path, damaged: str
) -> None:
    shutil.copytree(finished, tmp_path / "whole")
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    (path,) = run.glob(damaged)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    harmed, whole = train(steps=230), train("whole", steps=230)
    (line,) = harmed.lines
    assert "points of its curves may be lost or wrong" in line
    assert equal_weights(weights_of(harmed.agent), weights_of(whole.agent))
    np.testing.assert_array_equal(harmed.buffer.rows(0, 230), whole.buffer.rows(0, 230))


def test_incomplete_files_are_removed_and_foreign_files_stay(
    train: TrainRun, finished: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    before = {path for path in run.rglob("*") if not path.name.startswith("events")}
    half = ["config.json.tmp", "evaluations.csv.tmp", "lock.tmp", "videos/x.mp4.tmp"]
    half += ["replay/000000000200-000000000210.npy.tmp"]
    half += ["checkpoints/000000000210-000000000002/networks.index"]
    for name in (*half, "notes.tmp"):
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_bytes(b"half")
    Trainer(open_run(run, None, {})).close()
    after = {path for path in run.rglob("*") if not path.name.startswith("events")}
    assert after - before == {run / "videos", run / "notes.tmp"}


def test_a_run_stopped_before_its_first_checkpoint_starts_over(
    train: TrainRun, tmp_path: Path
) -> None:
    train(steps=50, env="Long-v0")
    for path in (tmp_path / "run" / "checkpoints").rglob("manifest.json"):
        path.unlink()
    trainer = train(steps=120)
    assert trainer.buffer.added == 120
    assert names(tmp_path / "run" / "checkpoints") == [
        "000000000100-000000000000",
        "000000000120-000000000000",
    ]


@pytest.mark.parametrize(("lines", "steps"), [(0, [300]), (2, [100, 300])])
def test_a_truncated_table_is_reported_and_loses_only_its_last_rows(
    train: TrainRun, tmp_path: Path, lines: int, steps: list[int]
) -> None:
    train(steps=200, env="Long-v0", evaluate_every_steps=100)
    table = tmp_path / "run" / "evaluations.csv"
    complete = table.read_text().splitlines(keepends=True)[:lines]
    os.truncate(table, len("".join(complete)) + 3)
    trainer = train(steps=300)
    assert any("evaluations.csv is missing or truncated" in line for line in trainer.lines)
    assert read_results(table).steps.tolist() == steps
