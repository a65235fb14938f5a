"""Makes the runs of the grid: each in one thread, some at a time, going on where they stopped."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from eagerly.benchmarks.grid import Cell
from eagerly.benchmarks.measuring import CONTENDERS, PEERS, machine
from eagerly.training.config import RunConfig
from eagerly.training.elapsed import seconds_at_evaluations
from eagerly.training.errors import RunError
from eagerly.training.evaluation import evaluation_seeds
from eagerly.training.presets import OF_THE_ENVIRONMENT
from eagerly.training.results import read_results
from eagerly.training.run_settings import build, expanded, recorded

# A process that lasts longer is stopped and begun again, so that little is lost with a machine.
MINUTES_PER_PROCESS = 15.0
_STOPPED = 143  # the exit code of a process that saved itself when asked to end
_SECONDS_TO_SAVE = 120.0
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


class Reproduction:
    """Makes cells, and publishes the evaluations of each that is complete.

    Args:
        tables: Folder of the tables, one per complete cell, with a file beside it that says how it
            was made; what was made as the grid has it now is not made again.
        work: Folder of what is under way.
        peers: Returns the Python of Stable-Baselines3's environment; asked for when needed.
        say: Hears what happens.
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
        self._stopping = threading.Event()

    def table(self, cell: Cell) -> Path:
        """Names the table of a cell."""
        return self._tables / f"{cell.name}.csv"

    def origin(self, cell: Cell) -> Path:
        """Names the file that says how the table of a cell was made."""
        return self.table(cell).with_suffix(".json")

    def is_complete(self, cell: Cell) -> bool:
        """Whether the table of a cell is there, with all its steps and the cell's settings."""
        if not self.origin(cell).is_file():
            return False
        made = json.loads(self.origin(cell).read_text(encoding="utf-8"))
        steps = read_results(self.table(cell)).steps
        same = made["settings"] == _settings(cell)
        return same and bool(steps.size) and int(steps[-1]) >= cell.steps

    def make(self, cells: Iterable[Cell], jobs: int) -> list[Cell]:
        """Makes what is missing, `jobs` cells at a time, until done or `stop`.

        Returns:
            The cells that failed; why was said.

        Raises:
            RuntimeError: If the peers' environment cannot be made.
        """
        missing = [cell for cell in cells if not self.is_complete(cell)]
        self._say(f"{len(missing)} runs are missing in {self._tables}")
        if any(cell.peer for cell in missing):
            self._peers()
        with ThreadPoolExecutor(jobs) as pool:
            fine = list(pool.map(self._make, missing))
        return [cell for cell, made in zip(missing, fine, strict=True) if not made]

    def stop(self) -> None:
        """Asks what runs to save itself and to end."""
        self._stopping.set()

    @property
    def stopped(self) -> bool:
        """Whether it was asked to stop."""
        return self._stopping.is_set()

    def _make(self, cell: Cell) -> bool:
        """Runs a cell; returns whether nothing went wrong."""
        try:
            return self._run(cell, self._work / cell.name)
        except (OSError, ValueError, KeyError, RunError) as error:
            self._say(f"{cell.name}: failed: {error!r}")
            return False

    def _run(self, cell: Cell, folder: Path) -> bool:
        """Runs a cell process by process."""
        code, began = _STOPPED, time.monotonic()
        while code == _STOPPED and not self.stopped:
            code = self._process(cell, folder)
        # One that was asked before it listened, or too long: it goes on from its last checkpoint.
        ended = {-signal.SIGTERM, -signal.SIGKILL} if self.stopped else set()
        if code in {_STOPPED, *ended}:
            if folder.exists():
                self._say(f"{cell.name}: stopped, goes on where it is")
            return True
        if code:
            log = (folder / "log.txt").read_text(encoding="utf-8", errors="replace")
            self._say(f"{cell.name}: failed with {code}\n{log[-2000:]}")
            return False
        self._publish(cell, folder)
        shutil.rmtree(folder)
        minutes = (time.monotonic() - began) / 60
        self._say(f"{cell.name}: {read_results(self.table(cell))} ({minutes:.0f} minutes)")
        return True

    def _publish(self, cell: Cell, folder: Path) -> None:
        """Writes the table of a complete cell: its evaluations, and when each was done."""
        made = folder / ("evaluations.csv" if cell.peer else "run/evaluations.csv")
        with made.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        if not cell.peer:
            seconds = seconds_at_evaluations(folder / "run")
            rows = [row | {"seconds": f"{seconds[int(row['steps'])]:.1f}"} for row in rows]
        self._tables.mkdir(parents=True, exist_ok=True)
        origin = {"settings": _settings(cell), "machine": machine()}
        self.origin(cell).write_text(json.dumps(origin, indent=1) + "\n", encoding="utf-8")
        partial = self.table(cell).with_suffix(".partial")
        with partial.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        os.replace(partial, self.table(cell))

    def _process(self, cell: Cell, folder: Path) -> int:
        """Runs one process of a cell and returns its exit code."""
        command = self._peer_command(cell, folder) if cell.peer else _own_command(cell, folder)
        ends = time.monotonic() + 60 * MINUTES_PER_PROCESS
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "log.txt").open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | _ONE_THREAD,
                start_new_session=True,  # Ctrl-C reaches it through `stop` alone
            )
            while process.poll() is None and time.monotonic() < ends:
                if self._stopping.wait(0.5):
                    break
            if process.poll() is None:
                process.terminate()
            try:
                return process.wait(_SECONDS_TO_SAVE)
            except subprocess.TimeoutExpired:
                process.kill()
                return process.wait()

    def _peer_command(self, cell: Cell, folder: Path) -> list[str]:
        script = CONTENDERS / "stable_baselines_learning.py"
        seeds = evaluation_seeds(RunConfig.evaluation_seed, RunConfig.evaluation_episodes)
        words = [cell.agent, cell.env, cell.steps, cell.seed, folder, *seeds]
        return [str(self._peers()), str(script), *map(str, words)]


def _given(cell: Cell) -> dict[str, Any]:
    """Returns what is typed for a run of this package."""
    given = {"env": cell.env, "seed": cell.seed, "steps": cell.steps} | cell.settings
    return given | {"intra_op_threads": 1, "inter_op_threads": 1}


def _settings(cell: Cell) -> dict[str, Any]:
    """Returns everything that makes the result of a cell, presets and defaults among it."""
    if cell.peer:
        return {"peers": list(PEERS), "script": "stable_baselines_learning.py"}
    settings, _ = expanded(cell.agent, _given(cell), cell.env, OF_THE_ENVIRONMENT)
    found: dict[str, Any] = {}
    for part in build(cell.agent, settings):
        free = {field.name for field in dataclasses.fields(part) if field.metadata["free"]}
        found |= {name: value for name, value in recorded(part).items() if name not in free}
    return dict(json.loads(json.dumps(found)))


def _own_command(cell: Cell, folder: Path) -> list[str]:
    settings = _given(cell)
    words = [sys.executable, "-m", "eagerly.scripts.train", cell.agent]
    for name, value in settings.items():
        written = value if isinstance(value, str) else json.dumps(value)
        words += [f"--{name.replace('_', '-')}", written]
    return [*words, "--run-dir", str(folder / "run"), "--no-progress"]
