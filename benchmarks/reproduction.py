"""Trains the runs of the grid in parallel, one thread each, and resumes interrupted runs."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from eagerly.benchmarks.grid import Cell, Recording
from eagerly.benchmarks.measuring import CONTENDERS, PEERS, machine
from eagerly.errors import RunError
from eagerly.reaper import reaper
from eagerly.scripts.job import wait_until_free
from eagerly.storage.config import RESUMABLE, RunConfig
from eagerly.storage.evaluations import last_step_of, read_results
from eagerly.storage.event_log import seconds_at_evaluations
from eagerly.storage.presets import OF_THE_ENVIRONMENT, with_preset
from eagerly.storage.run_settings import as_saved, build
from eagerly.training.evaluation import evaluation_seeds
from eagerly.training.run_processes import STOPPED, TrainingProcess, train_command
from eagerly.version import __version__

# Longer processes are stopped and resumed, so that a machine failure loses little work.
MINUTES_PER_PROCESS = 15.0
PEER_SCRIPT = CONTENDERS / "stable_baselines_learning.py"
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
_STOPPED = 128 + signal.SIGTERM  # exit code of a process that saved its run on SIGTERM
_SECONDS_TO_SAVE = 120.0
_CRASHES = 2  # crashes tolerated per cell
_PEER_REVISION = 1  # increment when the script's training or evaluation changes
# A table that other versions of these packages produced is not reused.
_PHYSICS = ("gymnasium", "mujoco")


class Reproduction:
    """Trains cells and writes a table of evaluations for each complete cell.

    Args:
        tables: Folder of the tables, one per complete cell, each with a JSON file that records its
            origin. Cells whose table matches the current grid are skipped.
        work: Folder of unfinished runs.
        peers: Function that returns the Python of Stable-Baselines3's virtual environment; called
            only if needed.
        say: Function that reports progress messages.
    """

    def __init__(
        self,
        tables: Path,
        work: Path,
        peers: Callable[[], Path],
        say: Callable[[str], None],
    ) -> None:
        self._tables, self._work = tables, work
        self._peers, self._say = peers, say
        self._stopping, self._recording = threading.Event(), threading.Lock()

    def table(self, cell: Cell) -> Path:
        """Returns the path of a cell's table."""
        return self._tables / f"{cell.name}.csv"

    def origin(self, cell: Cell) -> Path:
        """Returns the path of the JSON file that records the origin of a cell's table."""
        return self.table(cell).with_suffix(".json")

    def is_complete(self, cell: Cell) -> bool:
        """Returns whether a cell's table has all steps and was made as it would be made now."""
        try:
            made = json.loads(self.origin(cell).read_text(encoding="utf-8"))
            versions = made["machine"]["versions"]
        except (OSError, ValueError, KeyError, TypeError):
            return False
        here = machine()["versions"]
        # Packages named in an environment id may require another MuJoCo version.
        physics = ("gymnasium",) if ":" in cell.env else _PHYSICS
        same = _made_as(cell, made["settings"]) and all(
            versions.get(package) == here[package] for package in physics
        )
        return same and (last_step_of(self.table(cell)) or 0) >= cell.steps

    def complete(self, cells: Iterable[Cell]) -> set[str]:
        """Returns the names of the complete cells."""
        return {cell.name for cell in cells if self.is_complete(cell)}

    def make(self, cells: Iterable[Cell], jobs: int) -> list[Cell]:
        """Trains the missing cells, `jobs` at a time, until done or until `stop` is called.

        Returns:
            The cells that failed. Their errors are reported as progress messages.

        Raises:
            RuntimeError: If the peers' environment cannot be installed.
        """
        unique = {cell.name: cell for cell in cells}  # parts may share a cell
        missing = [cell for cell in unique.values() if not self.is_complete(cell)]
        self._say(f"{len(missing)} runs are missing in {self._tables}")
        if any(cell.peer for cell in missing):
            self._peers()
        with ThreadPoolExecutor(jobs) as pool:
            succeeded = list(pool.map(self._make, missing))
        return [cell for cell, made in zip(missing, succeeded, strict=True) if not made]

    def stop(self) -> None:
        """Asks all running processes to save and exit."""
        self._stopping.set()

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping.is_set()

    def _make(self, cell: Cell) -> bool:
        """Runs a cell and returns whether it completed, or stopped, without errors."""
        try:
            return self._run(cell, self._work / cell.name)
        except (OSError, ValueError, KeyError, RunError) as error:
            self._say(f"{cell.name}: failed: {error!r}")
            return False

    def _run(self, cell: Cell, folder: Path) -> bool:
        """Runs a cell as a sequence of processes."""
        began = time.monotonic()
        if cell.data and not self._has_recorded(cell.data):
            return self.stopped
        code = self._train(cell, folder)
        if code == _STOPPED:
            return True
        if code:
            return False
        self._publish(cell, folder)
        shutil.rmtree(folder)
        minutes = (time.monotonic() - began) / 60
        self._say(f"{cell.name}: {read_results(self.table(cell))} ({minutes:.0f} minutes)")
        return True

    def _has_recorded(self, recording: Recording) -> bool:
        """Records logged data, unless it exists, and returns whether it exists.

        A JSON file next to the data describes the recording. Data of another one are replaced.
        """
        data = self._data(recording)
        origin, described = data.with_suffix(".json"), json.dumps(_described(recording))
        with self._recording:  # several cells may need it
            with suppress(OSError):
                if data.exists() and origin.read_text(encoding="utf-8") == described:
                    return True
            origin.unlink(missing_ok=True)
            folder = self._work / f"{recording.teacher.name}-teacher"
            if self._train(recording.teacher, folder):
                return False
            partial = data.with_name(f"partial-{data.name}")
            partial.unlink(missing_ok=True)
            command = _record_command(recording, folder / "run", partial)
            process = _started(command, folder)
            while process.poll() is None:
                if self._stopping.wait(0.5):
                    process.stop(_SECONDS_TO_SAVE)
                    return False
            if process.returncode:
                self._report(recording.name, process.returncode, folder)
                return False
            partial.replace(data)
            origin.write_text(described, encoding="utf-8")
            self._say(f"{recording.name}: {process.printed().strip().splitlines()[-1]}")
            return True

    def _data(self, recording: Recording) -> Path:
        return self._work / f"{recording.name}.hdf5"

    def _report(self, name: str, code: int, folder: Path) -> None:
        log = (folder / "log.txt").read_text(encoding="utf-8", errors="replace")
        self._say(f"{name}: failed with exit code {code}\n{log[-2000:]}")

    def _train(self, cell: Cell, folder: Path) -> int:
        """Trains until a cell is complete and returns the exit code, `_STOPPED` if it stopped."""
        code, crashes = _STOPPED, 0
        if not self.stopped:
            self._begin(cell, folder)
        while code == _STOPPED and not self.stopped:
            code = self._process(cell, folder)
            if code < 0 and crashes < _CRASHES:
                name = signal.Signals(-code).name
                self._say(f"{cell.name}: killed by {name}, resuming from the last checkpoint")
                code, crashes = _STOPPED, crashes + 1
        if code == _STOPPED and folder.exists():
            self._say(f"{cell.name}: stopped; run the same command again to resume")
        elif code != _STOPPED and code:
            self._report(cell.name, code, folder)
        return code

    def _begin(self, cell: Cell, folder: Path) -> None:
        """Creates the folder of a cell and discards a run begun there in another way."""
        versions, path = machine()["versions"], folder / "settings.json"
        begun = _settings(cell) | {"versions": {name: versions[name] for name in _PHYSICS}}
        wait_until_free(folder / "run")  # a killed command may have left a process
        with suppress(OSError, ValueError):
            if json.loads(path.read_text(encoding="utf-8")) == begun:
                return
        if folder.exists():
            self._say(
                f"{cell.name}: the unfinished run has other settings or versions of "
                f"{' or '.join(_PHYSICS)}: restarting it"
            )
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        path.write_text(json.dumps(begun), encoding="utf-8")

    def _publish(self, cell: Cell, folder: Path) -> None:
        """Writes the table of a complete cell: its evaluations and their times.

        The origin file is deleted first and written last. A crash in between leaves a table without
        an origin file, and the cell counts as missing.
        """
        made = folder / ("evaluations.csv" if cell.peer else "run/evaluations.csv")
        with made.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        if not cell.peer:
            seconds = seconds_at_evaluations(folder / "run")
            rows = [row | {"seconds": f"{seconds[int(row['steps'])]:.1f}"} for row in rows]
        self._tables.mkdir(parents=True, exist_ok=True)
        self.origin(cell).unlink(missing_ok=True)
        partial = self.table(cell).with_suffix(".partial")
        with partial.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        os.replace(partial, self.table(cell))
        origin = {"settings": _settings(cell), "machine": machine(), "eagerly": __version__}
        partial.write_text(json.dumps(origin, indent=1) + "\n", encoding="utf-8")
        os.replace(partial, self.origin(cell))

    def _process(self, cell: Cell, folder: Path) -> int:
        """Runs one process of a cell and returns its exit code, `_STOPPED` if it was stopped."""
        command = self._peer_command(cell, folder) if cell.peer else _own_command(cell, folder)
        ends = time.monotonic() + 60 * MINUTES_PER_PROCESS
        process = _started(command, folder)
        while process.poll() is None and time.monotonic() < ends:
            if self._stopping.wait(0.5):
                break
        if process.poll() is not None:
            return process.returncode
        code = process.stop(_SECONDS_TO_SAVE)
        if code == -signal.SIGKILL:
            self._say(f"{cell.name}: not saved in time, resuming from the last checkpoint")
        return _STOPPED if code in {*STOPPED, -signal.SIGKILL} else code

    def _peer_command(self, cell: Cell, folder: Path) -> list[str]:
        words = [cell.agent, cell.env, cell.steps, cell.seed, folder, *default_evaluation_seeds()]
        return [str(self._peers()), str(PEER_SCRIPT), *map(str, words)]


def default_evaluation_seeds() -> list[int]:
    """Returns the default evaluation seeds, so that both packages play the same episodes."""
    return evaluation_seeds(RunConfig.evaluation_seed, RunConfig.evaluation_episodes)


def _given(cell: Cell, work: Path = Path()) -> dict[str, Any]:
    """Returns the explicit settings of a run of this package, with logged data in `work`."""
    given = {"env": cell.env, "seed": cell.seed, "steps": cell.steps} | cell.settings
    if cell.data:
        given |= {"offline": True, "data": str(work / f"{cell.data.name}.hdf5")}
    return given | {"intra_op_threads": 1, "inter_op_threads": 1}


def _settings(cell: Cell) -> dict[str, Any]:
    """Returns all settings that determine a cell's result, including presets and defaults."""
    if cell.peer:
        return {
            "steps": cell.steps,
            "peers": list(PEERS),
            "revision": _PEER_REVISION,
            "evaluation_seeds": default_evaluation_seeds(),
        }
    settings, _ = with_preset(cell.agent, _given(cell), cell.env, OF_THE_ENVIRONMENT)
    saved = as_saved(*build(cell.agent, settings, is_new=True))
    found = {name: value for name, value in saved.items() if name not in RESUMABLE}
    if cell.data:
        found["recording"] = _described(cell.data)
    return dict(json.loads(json.dumps(found)))


def _described(recording: Recording) -> dict[str, Any]:
    return {
        "teacher": {"agent": recording.teacher.agent} | _given(recording.teacher),
        "noise": recording.noise,
        "episodes": recording.episodes,
    }


def _made_as(cell: Cell, made: dict[str, Any]) -> bool:
    """Returns whether saved settings match a cell; those missing take their defaults."""
    wanted = _settings(cell)
    defaults = {} if cell.peer else _settings(dataclasses.replace(cell, settings={}, data=None))
    later = {name: value for name, value in defaults.items() if name not in made}
    return {**later, **made} == wanted


def _started(command: list[str], folder: Path) -> TrainingProcess:
    """Starts a process with one thread, which is killed if this one is."""
    process = TrainingProcess(command, folder / "log.txt", env=os.environ | ONE_THREAD)
    reaper().add([process.pid])
    return process


def _own_command(cell: Cell, folder: Path) -> list[str]:
    words = "--run-dir", str(folder / "run"), "--no-progress"
    return train_command(cell.agent, _given(cell, folder.parent), *words)


def _record_command(recording: Recording, run: Path, data: Path) -> list[str]:
    program = [sys.executable, "-P", "-m", "eagerly.scripts.record", str(run)]
    words = "--episodes", str(recording.episodes), "--noise", str(recording.noise)
    return [*program, "--which", "latest", *words, "-o", str(data)]
