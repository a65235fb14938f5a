"""The grid of learning curves, and the processes that train its runs. Scores are not tested."""

from __future__ import annotations

import dataclasses
import sys
import textwrap
import threading
import time
from pathlib import Path

import click
import gymnasium
import mujoco
import pytest

from eagerly.benchmarks import reproduction
from eagerly.benchmarks.grid import Cell, Recording, cells, parts
from eagerly.benchmarks.reproduction import Reproduction, _given, _own_command
from eagerly.curves.tables import read_groups
from eagerly.scripts.train import main
from eagerly.storage.evaluations import read_results

CELL = Cell("td3-fake", "td3", "Pendulum-v1", 3, 200)
# A program that replaces training. On SIGTERM, it exits as if it had saved the run. When started
# again, it completes the run.
STAND_IN = """
    import pathlib, signal, sys, time
    run = pathlib.Path(sys.argv[1]) / "run"
    if run.exists():
        (run / "evaluations.csv").write_text("steps,return_mean\\n100,1.5\\n200,2.5\\n")
        sys.exit(0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    run.mkdir()
    time.sleep(60)
"""


@pytest.fixture
def heard() -> list[str]:
    return []


@pytest.fixture
def made(tmp_path: Path, heard: list[str]) -> Reproduction:
    return Reproduction(tmp_path / "tables", tmp_path / "work", lambda: Path("no"), heard.append)


def _stand_in(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    code = textwrap.dedent(program)
    command = [sys.executable, "-S", "-c", code]
    monkeypatch.setattr(reproduction, "_own_command", lambda cell, folder: [*command, str(folder)])
    monkeypatch.setattr(reproduction, "seconds_at_evaluations", lambda run: {100: 4.0, 200: 8.25})


def _stop_once_begun(made: Reproduction, run: Path) -> None:
    """Stops all runs once the directory `run` exists: its process then handles signals."""

    def stop() -> None:
        while not run.exists():
            time.sleep(0.01)
        made.stop()

    threading.Thread(target=stop, daemon=True).start()


def test_no_two_runs_of_the_grid_share_a_table() -> None:
    unlike = {cell.name: cell for part in parts().values() for cell in part}
    for part in parts().values():
        assert len({cell.name for cell in part}) == len(part)
        assert all(cell == unlike[cell.name] for cell in part)
    names = set(unlike)
    assert "td3-HalfCheetah-v5-0" in names
    assert "sb3-ddpg-HalfCheetah-v5-4" in names


def test_a_label_determines_the_agent_and_its_package() -> None:
    (own,) = cells("td3-8-environments", "Ant-v5", 10, [1], num_envs=8)
    (peer,) = cells("sb3-ddpg", "Ant-v5", 10, [1])
    assert (own.agent, own.peer, peer.agent, peer.peer) == ("td3", False, "ddpg", True)
    command = _own_command(own, Path("x"))
    assert command[command.index("--num-envs") + 1] == "8"
    assert command[command.index("--intra-op-threads") + 1] == "1"


def test_the_command_line_accepts_every_run_of_the_grid() -> None:
    unlike = {(cell.label, cell.env): cell for part in parts().values() for cell in part}
    for cell in (cell for cell in unlike.values() if not cell.peer):
        words = _own_command(cell, Path("x"))
        words = words[words.index("eagerly.scripts.train") + 1 :]
        command = main.get_command(click.Context(main), words[0])
        assert command is not None
        typed = command.make_context("train", words[1:]).params
        assert _given(cell).items() <= typed.items()


def test_a_long_process_is_stopped_and_resumed(
    made: Reproduction, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _stand_in(monkeypatch, STAND_IN)
    monkeypatch.setattr(reproduction, "MINUTES_PER_PROCESS", 1 / 60)
    assert made.make([CELL], 1) == []
    assert made.is_complete(CELL)
    text = made.table(CELL).read_text()
    assert text == "steps,return_mean,seconds\n100,1.5,4.0\n200,2.5,8.2\n"
    assert list((tmp_path / "work").iterdir()) == []


def test_logged_data_are_recorded_once_and_used_by_all_runs(
    made: Reproduction, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, heard: list[str]
) -> None:
    _stand_in(monkeypatch, STAND_IN.replace("run.exists()", "run.mkdir(exist_ok=True) is None"))
    write = "import pathlib, sys; print('written'); pathlib.Path(sys.argv[1]).open('x')"
    monkeypatch.setattr(
        reproduction,
        "_record_command",
        lambda recording, run, data: [sys.executable, "-S", "-c", write, str(data)],
    )
    recording = Recording(CELL, 0.5, 10)
    offline = cells("td3_bc-fake", "Pendulum-v1", 200, [0, 1], recording)
    assert made.make(offline, 2) == []
    assert all(map(made.is_complete, offline))
    assert heard.count("td3-fake-Pendulum-v1-3-noise-0.5: written") == 1
    assert made._has_recorded(Recording(CELL, 0.5, 20))  # replaces the shorter recording
    assert heard.count("td3-fake-Pendulum-v1-3-noise-0.5: written") == 2
    other = dataclasses.replace(offline[0], data=Recording(CELL, 0.4, 10))
    assert not made.is_complete(other)
    failing = [sys.executable, "-c", "raise SystemExit('no room')"]
    monkeypatch.setattr(reproduction, "_record_command", lambda *_: failing)
    assert made.make([other], 1) == [other]
    assert "no room" in heard[-1]


def test_a_complete_run_is_not_trained_again(
    made: Reproduction, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stand_in(monkeypatch, STAND_IN.replace("run.exists()", "run.mkdir() is None"))
    assert made.make([CELL], 1) == []
    _stand_in(monkeypatch, "raise SystemExit('not again')")
    assert made.make([CELL], 1) == []
    assert read_results(made.table(CELL)).return_mean.tolist() == [1.5, 2.5]


def test_a_table_with_other_settings_or_versions_is_not_complete(
    made: Reproduction, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stand_in(monkeypatch, STAND_IN.replace("run.exists()", "run.mkdir() is None"))
    assert made.make([CELL], 1) == []
    assert made.is_complete(CELL)
    assert not made.is_complete(dataclasses.replace(CELL, settings={"tau": 0.1}))
    assert not made.is_complete(dataclasses.replace(CELL, steps=300))
    whole = made.origin(CELL).read_text()
    made.origin(CELL).write_text(
        whole.replace(f'"mujoco": "{mujoco.__version__}"', '"mujoco": "3"')
    )
    assert not made.is_complete(CELL)
    made.origin(CELL).write_text(whole[:20])  # truncated JSON
    assert not made.is_complete(CELL)
    made.origin(CELL).write_text(whole)
    assert made.is_complete(CELL)
    made.origin(CELL).unlink()  # the table remains without its origin file
    assert not made.is_complete(CELL)


def test_a_task_of_another_package_may_use_another_mujoco_version(
    made: Reproduction, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stand_in(monkeypatch, STAND_IN.replace("run.exists()", "run.mkdir() is None"))
    cell = dataclasses.replace(CELL, env="shimmy:dm_control/cheetah-run-v0")
    assert made.make([cell], 1) == []
    assert made.table(cell).name == "td3-fake-dm_control_cheetah_run-v0-3.csv"
    (group,) = read_groups([made.table(cell)])
    assert (group.label, group.env) == ("td3-fake", "dm_control_cheetah_run-v0")
    whole = made.origin(cell).read_text()
    for package, version, counts in (
        ("mujoco", mujoco.__version__, True),
        ("gymnasium", gymnasium.__version__, False),
    ):
        other = whole.replace(f'"{package}": "{version}"', f'"{package}": "0.1"')
        assert other != whole
        made.origin(cell).write_text(other)
        assert made.is_complete(cell) is counts


def test_an_unfinished_run_with_other_settings_is_restarted(
    made: Reproduction, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, heard: list[str]
) -> None:
    _stand_in(monkeypatch, STAND_IN)
    _stop_once_begun(made, tmp_path / "work" / CELL.name / "run")
    assert made.make([dataclasses.replace(CELL, settings={"tau": 0.1})], 1) == []
    assert (tmp_path / "work" / CELL.name / "run").exists()
    again = Reproduction(tmp_path / "tables", tmp_path / "work", Path, heard.append)
    _stand_in(monkeypatch, STAND_IN.replace("run.exists()", "run.mkdir() is None"))
    assert again.make([CELL], 1) == []  # `run.mkdir()` fails if the old directory exists
    assert sum("the unfinished run has other settings or versions" in line for line in heard) == 1


def test_a_table_is_complete_only_after_its_origin_is_written(
    made: Reproduction, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stand_in(monkeypatch, STAND_IN.replace("run.exists()", "run.mkdir() is None"))
    assert made.make([CELL], 1) == []
    renamed = []
    monkeypatch.setattr(reproduction.os, "replace", lambda source, target: renamed.append(target))
    other = dataclasses.replace(CELL, settings={"tau": 0.1})
    # Nothing is renamed, as if the process had been killed before.
    assert made.make([other], 1) == []
    assert renamed == [made.table(CELL), made.origin(CELL)]
    assert not made.is_complete(CELL)
    assert not made.is_complete(other)


def test_a_run_that_takes_too_long_to_save_is_resumed(
    made: Reproduction, monkeypatch: pytest.MonkeyPatch, heard: list[str]
) -> None:
    deaf = STAND_IN.replace("sys.exit(143)", "None")
    _stand_in(monkeypatch, deaf)
    monkeypatch.setattr(reproduction, "MINUTES_PER_PROCESS", 1 / 60)
    monkeypatch.setattr(reproduction, "_SECONDS_TO_SAVE", 0.5)
    assert made.make([CELL], 1) == []
    assert made.is_complete(CELL)
    assert any("not saved in time" in line for line in heard)


def test_a_failed_run_reports_its_error_and_the_others_continue(
    made: Reproduction, monkeypatch: pytest.MonkeyPatch, heard: list[str]
) -> None:
    _stand_in(monkeypatch, "raise SystemExit('no such thing')")
    other = Cell("td3-other", "td3", "Pendulum-v1", 0, 200)
    assert made.make([CELL, other], 1) == [CELL, other]
    assert sum("no such thing" in line for line in heard) == 2
    assert not made.is_complete(CELL)


def test_a_crashed_run_is_resumed_twice_and_reported(
    made: Reproduction, monkeypatch: pytest.MonkeyPatch, heard: list[str], tmp_path: Path
) -> None:
    crashing = """
        import os, pathlib, sys
        run = pathlib.Path(sys.argv[1]) / "run"
        run.mkdir(exist_ok=True)
        begun = len(list(run.iterdir()))
        (run / str(begun)).touch()
        if begun < CRASHES:
            os.kill(os.getpid(), 11)
        (run / "evaluations.csv").write_text("steps,return_mean\\n100,1.5\\n200,2.5\\n")
    """
    _stand_in(monkeypatch, crashing.replace("CRASHES", "2"))
    assert made.make([CELL], 1) == []
    assert made.is_complete(CELL)
    told = f"{CELL.name}: killed by SIGSEGV, resuming from the last checkpoint"
    assert heard.count(told) == 2
    _stand_in(monkeypatch, crashing.replace("CRASHES", "3"))
    other = dataclasses.replace(CELL, seed=4)
    assert made.make([other], 1) == [other]
    assert any("failed with exit code -11" in line for line in heard)


def test_stopping_lets_a_run_save_and_starts_no_other(
    made: Reproduction, monkeypatch: pytest.MonkeyPatch, heard: list[str], tmp_path: Path
) -> None:
    _stand_in(monkeypatch, STAND_IN)
    other = Cell("td3-other", "td3", "Pendulum-v1", 0, 200)
    _stop_once_begun(made, tmp_path / "work" / CELL.name / "run")
    assert made.make([CELL, other], 1) == []
    assert (tmp_path / "work" / CELL.name / "run").exists()
    assert not (tmp_path / "work" / other.name).exists()
    assert any("run the same command again to resume" in line for line in heard)


def test_a_run_that_is_stopped_before_it_handles_signals_has_not_failed(
    made: Reproduction, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stand_in(monkeypatch, "import time; time.sleep(60)")
    threading.Timer(0.3, made.stop).start()
    assert made.make([CELL], 1) == []


def test_an_error_in_one_run_does_not_stop_the_others(
    made: Reproduction, monkeypatch: pytest.MonkeyPatch, heard: list[str]
) -> None:
    _stand_in(monkeypatch, STAND_IN.replace("run.exists()", "run.mkdir() is None"))
    other = Cell("td3-other", "td3", "Pendulum-v1", 0, 200)
    monkeypatch.setattr(reproduction, "seconds_at_evaluations", lambda run: {})
    assert made.make([CELL, other], 1) == [CELL, other]
    assert sum("failed: KeyError" in line for line in heard) == 2
