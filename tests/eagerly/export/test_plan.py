"""An export uses the environment and the replay buffer of a run, one of the two, or neither."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eagerly import RunError
from eagerly.export import verification
from eagerly.export.exporting import export_policy
from eagerly.storage.files import RunFiles
from tests.eagerly.export import surroundings
from tests.eagerly.export.here import work_here
from tests.eagerly.export.surroundings import make_walk
from tests.small_runs import logged, train_in


@pytest.fixture
def out(tmp_path: Path) -> Iterator[Path]:
    """The destination of an export that fails. Nothing may remain there."""
    yield tmp_path / "exports" / "walk"
    assert list(tmp_path.iterdir()) == []


def document(path: Path) -> Any:
    return json.loads((path / "policy.json").read_text())


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with 1,100 observations in its replay buffer. Its environment prints to stdout."""
    surroundings.register()
    path = tmp_path_factory.mktemp("walks") / "walk"
    train_in(path, env="Walk-v0", steps=1100, warmup_steps=1000, evaluate_every_steps=1100)
    return path


@pytest.fixture(scope="module")
def factory_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("walks") / "of_a_factory"
    train_in(path, env=make_walk)
    return path


def test_an_environment_factory_must_be_passed_again(
    factory_run: Path,
    out: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(
        RunError, match=r"pass the factory again .*eagerly\.export_policy\(path, \.\.\., env="
    ):
        export_policy(factory_run, format="c", out=out, episodes=1)
    made = tmp_path_factory.mktemp("exports") / "walk"
    settings = {"env": make_walk}
    work_here(monkeypatch, but="the exported policy")  # the child process needs `make_walk`
    monkeypatch.setattr(verification, "loss", lambda *_: "the returns are lower")
    exported = export_policy(factory_run, format="c", out=made, episodes=1, **settings)
    assert "the returns are lower" in caplog.messages
    assert exported.measured["returns"]["exported"]["mean"] == pytest.approx(
        exported.measured["returns"]["policy"]["mean"], rel=1e-3
    )
    name = "factory tests.eagerly.export.surroundings:make_walk"
    assert document(made)["run"]["env"] == name
    assert f"# TD3 on `{name}`" in (made / "MODEL_CARD.md").read_text()


@pytest.mark.long
def test_bounds_of_flat_observations_come_from_the_environment(
    factory_run: Path, tmp_path: Path
) -> None:
    made = export_policy(factory_run, format="c", out=tmp_path / "x", episodes=0, env=make_walk)
    about = document(made.path)
    assert about["observation"]["space"] == {
        "Box": [[2], "float64", ["-1.0", "0.0"], ["1.0", "50.0"]]
    }
    assert about["words"]["observation"] == "Box([-1.0, 0.0], [1.0, 50.0], (2,), float64)"
    with np.load(made.path / "examples.npz") as file:
        assert file["observation"].dtype == np.float64
        assert np.isin(file["observation"][:, 1], np.arange(51)).all()


def test_no_environment_is_created_if_the_replay_buffer_suffices(
    walk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULT", "make")
    work_here(monkeypatch)
    made = export_policy(walk, format="c", out=tmp_path / "x", episodes=0)
    assert (made.measured["examples"], made.measured["returns"]) == (1000, None)
    assert document(made.path)["words"]["observation"] == "Box(-inf, inf, (2,), float32)"


def test_a_machine_moves_only_for_explicit_episodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    surroundings.register()
    path = tmp_path / "run"
    settings = {"env": "Walk-v0", "hardware": True, "evaluations": "none"}
    train_in(path, **settings, steps=1100, warmup_steps=1000)
    monkeypatch.setenv("FAULT", "make")
    work_here(monkeypatch)
    made = export_policy(path, format="c", out=tmp_path / "x")
    assert (made.measured["examples"], made.measured["returns"]) == (1000, None)
    with pytest.raises(RunError, match="cannot be created: ValueError: make went wrong"):
        export_policy(path, format="c", out=tmp_path / "y", episodes=1)
    shutil.rmtree(path / "replay")
    with pytest.raises(RunError, match="its replay buffer provides 0: pass --episodes N"):
        export_policy(path, format="c", out=tmp_path / "y")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("make", "environment 'Walk-v0' cannot be created: ValueError: make went wrong"),
        ("step", "step 1 of its episode: step failed: ValueError: step went wrong"),
        ("NaN", "in environment 'Walk-v0': observation must be finite in float32; got"),
        ("exit step", "step 1 of its episode: step failed: SystemExit: 3"),
        ("exit make", "environment 'Walk-v0' cannot be created: SystemExit: 3"),
        (
            "reset in the child",
            "the exported policy failed: environment 'Walk-v0', step 0 .* wrong",
        ),
        ("make in the child", "the exported policy failed: .* 'Walk-v0' cannot be created"),
    ],
)
def test_environment_errors_are_reported_in_one_line(
    fault: str, message: str, walk: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULT", fault)
    monkeypatch.setenv("PARENT", str(os.getpid()))
    work_here(monkeypatch, but="the exported policy")
    with pytest.raises(RunError, match=message) as failed:
        export_policy(walk, format="c", out=out, episodes=1)
    assert "\n" not in str(failed.value)
    advice = f": fix the environment first; `eagerly evaluate {walk}` shows where it fails"
    assert "Nothing was exported" in str(failed.value)
    assert str(failed.value).endswith(advice) == (fault != "NaN")


def test_a_run_without_its_replay_buffer_is_exported_only_in_float(
    walk: Path,
    out: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work_here(monkeypatch)
    copied = tmp_path_factory.mktemp("copied") / "run"
    shutil.copytree(walk, copied, ignore=shutil.ignore_patterns("replay"))
    with pytest.raises(
        RunError, match="int8 calibration requires observations from a replay buffer"
    ):
        export_policy(copied, format="c", precision="int8", out=out, episodes=0)
    with logged() as lines:
        made = export_policy(copied, format="c", out=copied.parent / "x", episodes=0)
    expected = f"{copied} has no replay buffer: all examples come from episodes of the policy"
    assert any(line.startswith(expected) for line in lines)
    assert not any("damaged" in line for line in lines)
    assert made.measured["examples"] == 1000


@pytest.mark.long
def test_a_damaged_replay_buffer_counts_as_missing(walk: Path, tmp_path: Path) -> None:
    copied = tmp_path / "run"
    shutil.copytree(walk, copied)
    for segment in (copied / "replay").iterdir():
        segment.write_bytes(b"damaged")
        break
    with logged() as lines:
        made = export_policy(copied, format="c", out=tmp_path / "x", episodes=0)
    assert any(line.endswith("all examples come from episodes of the policy") for line in lines)
    assert made.measured["examples"] == 1000
    with pytest.raises(RunError, match="has no intact checkpoint"):
        export_policy(copied, format="c", precision="int8", out=tmp_path / "y", episodes=0)


@pytest.mark.long
def test_replay_buffer_segments_are_read_once(
    walk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, checked = RunFiles.described, []

    def described(files: RunFiles, name: str) -> Any:
        checked.append(name)
        return original(files, name)

    monkeypatch.setattr(RunFiles, "described", described)
    export_policy(walk, format="c", precision="int8", out=tmp_path / "x", episodes=0)
    segments = [name for name in checked if name.startswith("replay/")]
    assert segments
    assert len(segments) == len(set(segments))
