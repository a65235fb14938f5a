"""Checkpoint manifests, including those of newer and older versions and damaged ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eagerly import open_run
from eagerly.errors import RunError
from eagerly.storage import documents
from eagerly.storage.digests import digests
from eagerly.storage.documents import unsealed
from eagerly.storage.files import RunFiles
from eagerly.storage.manifest import FORMAT, published, read_manifest
from tests.helpers import edit_sealed
from tests.small_runs import SMALL, TrainRun


def manifests(run: Path) -> list[Path]:
    return sorted(run.glob("checkpoints/*/manifest.json"))


def test_a_manifest_covers_all_files_of_a_run(train: TrainRun, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(steps=200)
    manifest = published(run)[-1]
    config = unsealed(json.loads((run / "config.json").read_text()))
    assert manifest.config == config
    components = {"agent", "budget", "buffer", "collector", "policies", "summaries"}
    assert set(manifest.state) == components
    files = {p.relative_to(run).as_posix() for p in run.rglob("*") if p.is_file()}
    older = {name for name in files if name.startswith("checkpoints/000000000100")}
    covered = manifest.parts.keys() | manifest.growing.keys() | {"config.json"}
    assert files - older - covered == {"lock", f"{manifest.folder}/manifest.json"}
    for name, description in manifest.growing.items():
        assert description["bytes"] == (run / name).stat().st_size


def test_a_newer_format_is_rejected_with_advice(train: TrainRun, tmp_path: Path) -> None:
    train(steps=110)
    newest = manifests(tmp_path / "run")[-1]
    edit_sealed(newest, lambda document: document.update(format=FORMAT + 1))
    with pytest.raises(RunError, match=r"newer version of eagerly .*: upgrade eagerly to resume"):
        train(steps=210)


def test_lost_settings_are_read_from_the_newest_checkpoint(train: TrainRun, tmp_path: Path) -> None:
    brief = {"warmup_steps": 40, "replay_ratio": 0.04}
    train("straight", steps=120, tau=0.25, **brief)
    for damage in ("gone", "edited"):
        run = tmp_path / damage
        train(damage, steps=77, tau=0.25, **brief)
        config = run / "config.json"
        content = config.read_text()
        if damage == "gone":
            config.unlink()
        else:
            config.write_text(content.replace("0.25", "0.75"))
        trainer = train(damage, steps=120, **brief)
        (line,) = trainer.lines
        assert "config.json cannot be read" in line
        assert "using the settings saved in the checkpoint at step 77" in line
        assert trainer.run.agent_config.tau == 0.25
        assert digests(run) == digests(tmp_path / "straight")


def test_a_checkpoint_that_could_not_be_read_back_ends_the_run_and_keeps_the_older_one(
    train: TrainRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(steps=200)
    (before,) = manifests(tmp_path / "run")[-1:]
    size = before.stat().st_size
    with monkeypatch.context() as patch:
        # The next manifest exceeds this limit, because it lists one more replay segment.
        patch.setattr(documents, "_LARGEST_DOCUMENT", size + 20)
        message = rf"stopped after step 300: .* more than {size + 20} bytes\)\. The largest state "
        with pytest.raises(RunError, match=message):
            train(steps=300)
    assert manifests(tmp_path / "run")[-1] == before
    trainer = train(steps=300)
    assert trainer.lines == []
    train("straight", steps=300)
    assert digests(tmp_path / "run") == digests(tmp_path / "straight")


def test_settings_that_could_not_be_read_back_start_no_run(tmp_path: Path) -> None:
    deep: Any = 1
    for _ in range(110):
        deep = {"a": deep}
    run = open_run(tmp_path / "run", "td3", SMALL | {"env_kwargs": deep})
    with pytest.raises(RunError, match=r"config\.json was not written: .* nested too deeply"):
        run.write()
    assert not (tmp_path / "run" / "config.json").exists()
    run.unlock()


def test_invalid_manifests_are_skipped(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints" / "000000000001-000000000000"
    folder.mkdir(parents=True)
    for content in ("", "[]", "{}", '{"manifest": 3}', "null", '{"sha256": 1, "manifest": {}}'):
        (folder / "manifest.json").write_text(content)
        with pytest.raises(ValueError, match=r"it is not|checksum|Expecting"):
            read_manifest(RunFiles(tmp_path), f"checkpoints/{folder.name}")
        assert published(tmp_path) == []
