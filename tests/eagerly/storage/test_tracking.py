"""The setting `track`, and the identity of a run in a tracker."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from eagerly import RunError, open_run
from eagerly.errors import UsageError
from eagerly.storage.run_settings import COMPARABLE
from eagerly.storage.tracking import TRACKERS, check_tracker, split_track, tracker_id
from eagerly.storage.trust import FACTORIES, OUTSIDE


@pytest.mark.parametrize(
    ("track", "kind", "target"),
    [
        ("wandb", "wandb", ""),
        ("wandb:my project-1", "wandb", "my project-1"),
        ("mlflow", "mlflow", ""),
        ("mlflow:sqlite:///mlflow.db", "mlflow", "sqlite:///mlflow.db"),
        ("mlflow:http://user@host:5000", "mlflow", "http://user@host:5000"),
        ("mlflow:postgresql://h/db?passfile=/p", "mlflow", "postgresql://h/db?passfile=/p"),
    ],
)
def test_valid_forms_are_split(track: str, kind: str, target: str, tmp_path: Path) -> None:
    run = open_run(tmp_path / "run", "td3", {"env": "Pendulum-v1", "track": track})
    assert split_track(run.config.track) == (kind, target)


@pytest.mark.parametrize(
    ("track", "problem"),
    [
        ("neptune", "track must be wandb, wandb:PROJECT, mlflow or mlflow:URI; got 'neptune'"),
        ("wandb:", "track must be wandb"),
        ("wandb:team/project", "set WANDB_ENTITY"),
        ("mlflow:mlruns", "must be a database or a server"),
        ("mlflow:file:///mlruns", "must be a database or a server"),
        ("mlflow:http://host/a b", "write %20 for a blank"),
        ("mlflow:postgresql://user:secret@host/db", "must not contain a password"),
        ("mlflow:postgresql://h/db?user=u&password=secret", "must not contain a password"),
        ("mlflow:mysql://h/db?a=1&PassWd=secret", "must not contain a password"),
        ("mlflow:mssql+pyodbc://?odbc_connect=UID%3Du%3BPWD%3Dsecret", "not contain a password"),
    ],
)
def test_invalid_forms_are_reported_at_once(track: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=problem) as error:
        open_run(tmp_path / "run", "td3", {"env": "Pendulum-v1", "track": track})
    assert "\n" not in str(error.value)


def test_each_tracker_has_a_module() -> None:
    for kind in TRACKERS:
        assert hasattr(importlib.import_module(f"eagerly.training.{kind}_tracker"), "Session")


@pytest.mark.parametrize("found", [None, SimpleNamespace(origin=None)])
def test_a_missing_package_is_reported_with_instructions(
    monkeypatch: pytest.MonkeyPatch, found: object
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found)
    with pytest.raises(RunError, match=r"requires the package wandb: pip install 'eagerly\[wandb"):
        check_tracker("wandb:project")
    check_tracker("")


def test_a_run_keeps_its_id_but_neither_a_copy_nor_an_overridden_run_does(tmp_path: Path) -> None:
    run, copy = tmp_path / "run", tmp_path / "copy"
    run.mkdir()
    first = tracker_id(run, "wandb", [])
    other = tracker_id(run, "mlflow", [])
    assert len({first, other}) == 2
    assert (tracker_id(run, "wandb", []), tracker_id(run, "mlflow", [])) == (first, other)
    shutil.copytree(run, copy)
    assert tracker_id(copy, "wandb", []) not in (first, other)
    (tmp_path / "link").symlink_to(run)
    assert tracker_id(tmp_path / "link", "wandb", []) == first
    overridden = tracker_id(run, "wandb", [{"steps": 3}])
    assert overridden != first
    assert tracker_id(run, "wandb", [{"steps": 3}]) == overridden


@pytest.mark.parametrize("content", [b"", b"[]", b'{"ids": {"wandb": "0123456789abcdef"}}'])
def test_a_damaged_document_gives_a_new_id(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tracking.json").write_bytes(content)
    found = tracker_id(tmp_path, "wandb", [])
    assert found != "0123456789abcdef"
    assert tracker_id(tmp_path, "wandb", []) == found


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    run, victim = tmp_path / "run", tmp_path / "victim"
    run.mkdir()
    victim.write_text("content")
    (run / "tracking.json").symlink_to(victim)
    tracker_id(run, "wandb", [])
    assert victim.read_text() == "content"
    assert not (run / "tracking.json").is_symlink()


def test_a_preset_file_cannot_choose_a_destination_or_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"env": "Pendulum-v1", "preset": "best.toml"}
    lines = 'track = "mlflow:http://evil"', 'models = "own:make"', 'init_from = "x"'
    for line in (*lines, 'collectors = "ray"'):
        Path("best.toml").write_text(f"tau = 0.5\n{line}")
        name = line.split()[0]
        flag = f"--{name.replace('_', '-')}"
        with pytest.raises(UsageError, match=f"best.toml sets {name}, which .* or add {flag}$"):
            open_run(Path("run"), "td3", given)
    Path("best.toml").write_text('tau = 0.5\nmodels = "own:make"')
    run = open_run(Path("run"), "td3", {**given, "models": "own:make"})
    assert (run.agent_config.tau, run.agent_config.models) == (0.5, "own:make")
    # `write_preset` omits the others.
    of_the_task = {"env", "env_kwargs", "wrapper", "evaluation_env_kwargs", "init_from", "data"}
    written = OUTSIDE.keys() - COMPARABLE - of_the_task - {"agent"}
    assert written == set(FACTORIES)
