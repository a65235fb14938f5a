"""A run that is trained in its own process."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from eagerly.errors import RunError
from eagerly.scripts.output import tell
from eagerly.storage.config import NO_EVALUATIONS
from eagerly.storage.lock import RunLock, is_locked, is_locked_for_child, lock_for_child
from eagerly.storage.run import Run
from eagerly.storage.run_document import read_document_of, results_of
from eagerly.training.run_processes import STOPPED, TrainingProcess

_GPUS = Path("/proc/driver/nvidia/gpus")  # has one directory per GPU
_PATIENCE = 60.0  # seconds that processes of a killed command have to save and exit
_END_OF_OUTPUT = 2000  # characters of output shown if a process fails without an error message


def log_of(run: Path) -> Path:
    """Returns the log path of a run that `Job` trains, next to the run directory."""
    return run.with_name(f"{run.name}.log")


def wait_until_free(run: Path) -> None:
    """Waits for a process to save and exit after its parent command was killed.

    Args:
        run: The run directory. It may not exist yet if the process was just started.

    Raises:
        RunError: If the process is still alive after `_PATIENCE` seconds.
    """
    deadline, told = time.monotonic() + _PATIENCE, False
    while is_locked(run) or is_locked_for_child(log_of(run)):
        if time.monotonic() > deadline:
            if is_locked(run):
                RunLock(run).close()  # raises an error that names the holder
            raise RunError(
                f"{run} is still being started or stopped by a process of another command, which "
                f"has locked {log_of(run)}: end that process or choose another --run-dir"
            )
        if not told:
            tell(f"waiting up to {_PATIENCE:.0f} s for a process that is still training {run}")
            told = True
        time.sleep(0.2)


def gpus() -> list[str]:
    """Returns the GPUs that this process may use, as in CUDA_VISIBLE_DEVICES, if it has several."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        found = [str(number) for number, _ in enumerate(_GPUS.glob("*"))]
    else:
        found = [name.strip() for name in listed.split(",")]
    return found if len(found) > 1 else []


@dataclass(eq=False)
class Job:
    """A run that is trained in its own process.

    Attributes:
        name: Name of the run in messages.
        run: The run, opened before any process is started.
        command: Command that trains the run.
        steps: Last known number of completed environment steps.
        score: Return of the latest evaluation.
        state: "waiting", "running", "stopped", "failed" or "finished".
        problem: Why the process cannot be started, if it cannot.
        gpu: The GPUs that the process may use, as in CUDA_VISIBLE_DEVICES; "" for all.
    """

    name: str
    run: Run
    command: list[str]
    steps: int = 0
    score: str = ""
    state: str = "waiting"
    gpu: str = ""
    problem: str = ""
    _process: TrainingProcess | None = None
    _reports: int = -1  # read end of the progress pipe
    _unread: bytes = b""

    @property
    def log(self) -> Path:
        """The file that receives the output of the process, next to the run directory."""
        return log_of(self.run.path)

    @property
    def exit_code(self) -> int | None:
        """The exit code of the process, or None if it runs or was not started."""
        return self._process.poll() if self._process else None

    @property
    def process(self) -> TrainingProcess:
        """The training process; available only after `start`."""
        assert self._process is not None
        return self._process

    def start(self) -> None:
        """Starts the process, which reports progress through a pipe (see `ProgressReports`).

        The log stays locked while the process lives. This protects the run before the process has
        loaded enough code to lock the run directory itself.

        Raises:
            OSError: If the process cannot be started, or its log cannot be opened or locked.
            ValueError: If the log path is not a regular file.
        """
        self._reports, write_end = os.pipe()
        try:
            for end in (self._reports, write_end):
                os.set_blocking(end, False)
            words = [*self.command, "--report-to", str(write_end)]
            only = {"CUDA_VISIBLE_DEVICES": self.gpu} if self.gpu else {}
            with lock_for_child(self.log) as lock:
                inherited = [write_end, lock.fileno()]
                self._process = TrainingProcess(
                    words, self.log, env=os.environ | only, pass_fds=inherited
                )
        except BaseException:
            os.close(self._reports)
            raise
        finally:
            os.close(write_end)
        self.state = "running"

    def look(self) -> list[str]:
        """Reads new progress reports, and updates `state` if the process has ended.

        Returns:
            The new evaluations, one line each.
        """
        code = self.process.poll()  # polled first, so that no final report is missed
        with suppress(BlockingIOError):
            while chunk := os.read(self._reports, 65536):
                self._unread += chunk
        *lines, self._unread = self._unread.split(b"\n")
        evaluations = []
        for line in lines:
            steps, _, text = line.decode().partition(" ")
            self.steps = int(steps)
            if text:
                self.score = text.split()[1]  # RETURN in "evaluation RETURN ..."
                evaluations.append(f"step {steps}: {text}")
        if code is not None:
            os.close(self._reports)
            self.state = "stopped" if code in STOPPED else "failed" if code else "finished"
        return evaluations

    def result(self) -> str:
        """Returns the completed steps and a summary of the evaluations, as text."""
        if self.run.config.evaluations == NO_EVALUATIONS:
            return f"{self.steps} steps; never evaluated"
        try:
            path = self.run.path  # the process may have added an override
            return f"{self.steps} steps; {results_of(path, read_document_of(path)['history'])}"
        except RunError:
            return f"{self.steps} steps; evaluations.csv is damaged and cannot be read"

    def failure(self) -> str:
        """Returns the cause of a failure: the signal, error message, or end of the output."""
        if self.problem:
            return self.problem
        code, text = self.process.returncode, self.process.printed().strip()
        if code < 0:
            name = signal.Signals(-code).name
            return f"process killed by {name}; the run can resume from its last checkpoint"
        _, error, message = f"\n{text}".rpartition("\nError: ")
        return message if error else f"exit code {code}\n{text[-_END_OF_OUTPUT:]}"
