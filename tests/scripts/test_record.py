from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eagerly.datasets import open_dataset
from eagerly.scripts import record
from eagerly.storage.run import open_run
from tests.small_runs import train_in

Record = Callable[..., Result]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("record") / "run 1"
    train_in(path, steps=200)
    return path


@pytest.fixture
def recorded(run: Path, tmp_path: Path) -> Record:
    def invoke(name: str, *words: str) -> Result:
        out = ["-o", str(tmp_path / name)]
        return CliRunner().invoke(record.main, [str(run), "--episodes", "2", *out, *words])

    return invoke


def test_a_file_in_minaris_layout_is_recorded(run: Path, recorded: Record, tmp_path: Path) -> None:
    result = recorded("a.hdf5", "--noise", "0.3", "--steps-limit", "7")
    assert result.exit_code == 0, result.output
    cut, line = result.output.splitlines()
    assert cut == "2 of 2 episodes were cut after 7 steps and recorded as truncated"
    assert f"best policy of {run} (step 150), noise 0.3: 2 episodes of Pendulum-v1" in line
    assert "with 14 steps, return " in line
    assert line.endswith(f": {tmp_path / 'a.hdf5'}")
    env = open_run(run, None, {}).environment()()
    found = open_dataset(tmp_path / "a.hdf5", env.observation_space, env.action_space)
    assert sum(map(len, found.chunks())) == 14
    assert recorded("b.h5", "--noise", "0.3", "--steps-limit", "7").exit_code == 0
    assert (tmp_path / "b.h5").read_bytes() == (tmp_path / "a.hdf5").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.hdf5", "b.h5"]


def test_a_folder_contains_minaris_metadata(recorded: Record, tmp_path: Path) -> None:
    assert recorded("a", "--steps-limit", "7").exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    document = json.loads((tmp_path / "a" / "metadata.json").read_text())
    assert document["dataset_id"] == "eagerly/run-1-v0"
    assert document["algorithm_name"] == "td3"
    assert document["total_episodes"] == 2
    spec = json.loads(document["env_spec"])
    assert spec["id"] == "Pendulum-v1"
    assert spec["max_episode_steps"] == 200
    assert spec["additional_wrappers"] == []
    assert recorded("b", "--steps-limit", "7", "--env-kwargs", '{"g": 1.5}').exit_code == 0
    document = json.loads((tmp_path / "b" / "metadata.json").read_text())
    assert json.loads(document["env_spec"])["kwargs"] == {"g": 1.5}
    assert "env_kwargs must be a dictionary of" in recorded("c", "--env-kwargs", "3").output


def test_recordings_are_never_overwritten(recorded: Record, tmp_path: Path) -> None:
    (tmp_path / "a.hdf5").write_text("mine")
    result = recorded("a.hdf5")
    assert result.exit_code == 2
    assert "a.hdf5 must not exist, because recordings are never overwritten" in result.output
    assert (tmp_path / "a.hdf5").read_text() == "mine"


def test_a_file_system_without_hard_links_keeps_the_recording(
    recorded: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    assert recorded("a.hdf5").exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["a.hdf5"]
    assert (tmp_path / "a.hdf5").stat().st_size > 0
    result = recorded("b.hdf5", "--noise", "nan")
    assert result.exit_code == 2
    assert "--noise must be in [0, 10]; got nan" in result.output


def test_a_folder_that_cannot_be_written_is_an_error(recorded: Record) -> None:
    result = recorded("/proc/a.hdf5")
    assert result.exit_code == 1
    assert "Error: [Errno 2] No such file or directory: '/proc/.a.hdf5." in result.output


@pytest.mark.parametrize("name", ["sim.csv", "sim.HDF5", "sim.v0"])
def test_an_unknown_suffix_is_an_error(name: str, recorded: Record, tmp_path: Path) -> None:
    result = recorded(name)
    assert result.exit_code == 2
    (line,) = (line for line in result.output.splitlines() if line.startswith("Error: "))
    assert "-o must end in .hdf5 or .h5 for a file, or have no suffix for a folder" in line
    assert f"got {tmp_path / name}" in line
    assert not list(tmp_path.iterdir())


def test_a_failure_leaves_no_files(
    recorded: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gymnasium.envs.classic_control.pendulum import PendulumEnv

    monkeypatch.setattr(PendulumEnv, "step", lambda env, action: 1 / 0)
    result = recorded("a.hdf5")
    assert result.exit_code == 1
    assert "ZeroDivisionError" in result.output
    assert not list(tmp_path.iterdir())
