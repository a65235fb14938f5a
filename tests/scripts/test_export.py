"""The export command and its output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from eagerly.export import verification
from eagerly.scripts.main import main
from tests.eagerly.export import surroundings
from tests.eagerly.export.here import work_here
from tests.small_runs import train_in


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a run in an environment that writes to standard output."""
    surroundings.register()
    path = tmp_path_factory.mktemp("walks") / "walk"
    train_in(path, env="Walk-v0")
    return path


@pytest.mark.parametrize("command", ["export", "evaluate"])
def test_only_json_is_printed_to_standard_output(
    command: str, walk: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = [command, str(walk), "--json", "--episodes", "1"]
    words += ["--format", "c", "--out", str(tmp_path / "x")] if command == "export" else []
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["run_dir"] == str(walk)
    assert "an episode begins" in result.stderr
    printed = capfd.readouterr()
    assert printed.out == ""
    assert "output of compiled code" in printed.err


def test_an_int8_export_prints_its_measurements(
    walk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    work_here(monkeypatch)
    words = ["export", str(walk), "--format", "c", "--precision", "int8", "--out", "x"]
    result = CliRunner().invoke(main, [*words, "--episodes", "1"])
    assert result.exit_code == 0, result.output
    assert "best policy of" in result.output
    assert "differences from the policy" in result.output
    assert "mean return over 1 episodes" in result.output
    about = json.loads((tmp_path / "x" / "policy.json").read_text())
    assert about["model"]["inputs"][0]["dtype"] == "int8"
    assert about["measured"]["differences"]["unequal"] <= 0.01
    again = CliRunner().invoke(main, words)
    assert again.exit_code == 2
    assert "Error: x already exists" in again.output
    monkeypatch.setattr(verification, "ROUNDING_LIMIT", {"mean": 1e-9})
    rejected = CliRunner().invoke(main, [*words[:-1], "y", "--episodes", "0"])
    assert "Error: int8 rounding changes the actions too much: mean" in rejected.output
    assert not (tmp_path / "y").exists()
