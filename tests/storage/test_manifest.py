"""Manifests: what is newer, older or damaged."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from eagerly import Trainer, open_run
from eagerly.errors import RunError
from eagerly.storage.digests import digests
from eagerly.storage.documents import checksum, unsealed
from eagerly.storage.files import RunFiles
from eagerly.storage.manifest import FORMAT, published, read_manifest
from tests.helpers import edit_sealed
from tests.small_runs import Listener, TrainRun


def manifests(run: Path) -> list[Path]:
    return sorted(run.glob("checkpoints/*/manifest.json"))


def test_a_manifest_covers_everything_that_a_run_is(train: TrainRun, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(steps=200)
    manifest = published(run)[-1]
    config = unsealed(json.loads((run / "config.json").read_text()))
    assert manifest.config == config
    assert set(manifest.state["random"]) == {"exploration", "sampling", "warmup"}
    files = {p.relative_to(run).as_posix() for p in run.rglob("*") if p.is_file()}
    older = {name for name in files if name.startswith("checkpoints/000000000100")}
    covered = manifest.parts.keys() | manifest.growing.keys() | {"config.json"}
    assert files - older - covered == {"lock", f"{manifest.folder}/manifest.json"}
    for name, description in manifest.growing.items():
        assert description["bytes"] == (run / name).stat().st_size


def test_one_that_is_too_new_is_refused_with_advice(train: TrainRun, tmp_path: Path) -> None:
    train(steps=200)
    newest = manifests(tmp_path / "run")[-1]
    edit_sealed(newest, lambda document: document.update(format=FORMAT + 1))
    with pytest.raises(RunError, match="newer eagerly: upgrade to continue it, or begin another"):
        train(steps=210)


def as_format_1(run: Path) -> None:
    """Writes a run as it was written before there were seals."""
    config = unsealed(json.loads((run / "config.json").read_text())) | {"format": 1}
    for name in ("checkpoint_every_minutes", "restore_episodes", "environment_timeout_seconds"):
        del config["run"][name]
    (run / "config.json").write_text(json.dumps(config))
    (run / "lock").unlink()
    for path in manifests(run):
        document = unsealed(json.loads(path.read_text())) | {"format": 1}
        del document["config"], document["state"]["returns"], document["state"]["restorable"]
        growing = document.pop("growing").items()
        document["lengths"] = {name: description["bytes"] for name, description in growing}
        path.write_text(json.dumps({"manifest": document, "sha256": checksum(document)}))


def test_a_run_of_the_format_before_continues_exactly(train: TrainRun, tmp_path: Path) -> None:
    train("straight", steps=330)
    train("old", steps=270)
    as_format_1(tmp_path / "old")
    trainer = train("old", steps=330)
    assert trainer.reporter.lines == []
    assert digests(tmp_path / "old") == digests(tmp_path / "straight")
    assert json.loads((tmp_path / "old" / "config.json").read_text())["format"] == FORMAT


def test_settings_that_were_lost_come_from_the_newest_checkpoint(
    train: TrainRun, tmp_path: Path
) -> None:
    train("straight", steps=330, tau=0.25)
    for damage in ("gone", "edited"):
        run = tmp_path / damage
        train(damage, steps=270, tau=0.25)
        config = run / "config.json"
        content = config.read_text()
        if damage == "gone":
            config.unlink()
        else:
            config.write_text(content.replace("0.25", "0.75"))
        trainer = Trainer(open_run(run, None, {"steps": 330}), Listener())
        with closing(trainer):
            trainer.train()
        (line,) = trainer.reporter.lines
        assert "config.json cannot be read" in line
        assert "the settings are those of the checkpoint of step 270" in line
        assert trainer.run.agent_config.tau == 0.25
        assert digests(run) == digests(tmp_path / "straight")


def test_what_is_not_a_manifest_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints" / "000000000001-000000000000"
    folder.mkdir(parents=True)
    for content in ("", "[]", "{}", '{"manifest": 3}', "null", '{"sha256": 1, "manifest": {}}'):
        (folder / "manifest.json").write_text(content)
        with pytest.raises(ValueError, match=r"it is not|Expecting"):
            read_manifest(RunFiles(tmp_path), f"checkpoints/{folder.name}")
        assert published(tmp_path) == []
