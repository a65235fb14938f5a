"""Trains several runs at a time, each in a process of its own, and shows how far they are."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from eagerly.errors import RunError
from eagerly.scripts.output import tell
from eagerly.storage.evaluations import read_results
from eagerly.storage.lock import lock_for_child
from eagerly.storage.run import Run
from eagerly.training.run_processes import STOPPED, TrainingProcess
from eagerly.training.signals import StopSignals

_TICK = 0.1  # seconds between two looks at the processes
_END_OF_OUTPUT = 2000  # characters that are shown of a process that failed without a message


def log_of(run: Path) -> Path:
    """Returns the path of the log of a run that is trained beside others."""
    return run.with_name(f"{run.name}.log")


@dataclass
class Job:
    """A run to be trained in a process of its own.

    Attributes:
        name: What the run is called in messages.
        run: The run, as it was opened before anything began.
        command: What trains it.
        steps: Environment steps that are known to be done.
        score: The return of its newest evaluation.
        state: "waiting", "running", "stopped", "failed" or "finished".
    """

    name: str
    run: Run
    command: list[str]
    steps: int = 0
    score: str = ""
    state: str = "waiting"
    _process: TrainingProcess | None = None
    _reports: int = -1  # read end of the pipe from its process
    _unread: bytes = b""

    @property
    def log(self) -> Path:
        """The file with what its process prints, beside the run directory."""
        return log_of(self.run.path)

    @property
    def process(self) -> TrainingProcess:
        """Its process, once it was started."""
        assert self._process is not None
        return self._process

    def start(self) -> None:
        """Starts its process, which reports through a pipe (`ProgressReports`).

        While it lives its log is locked, also before it has loaded what it needs to lock its run.

        Raises:
            OSError: If that fails.
            ValueError: If no log can be written.
        """
        self._reports, write_end = os.pipe()
        try:
            for end in (self._reports, write_end):
                os.set_blocking(end, False)
            words = [*self.command, "--report-to", str(write_end)]
            with lock_for_child(self.log) as lock:
                inherited = [write_end, lock.fileno()]
                self._process = TrainingProcess(words, self.log, pass_fds=inherited)
        except BaseException:
            os.close(self._reports)
            raise
        finally:
            os.close(write_end)
        self.state = "running"

    def look(self) -> list[str]:
        """Reads what its process has reported; notices if it has ended, and how.

        Returns:
            Its new evaluations, in words.
        """
        code = self.process.poll()  # before its last reports are read
        with suppress(BlockingIOError):
            while chunk := os.read(self._reports, 65536):
                self._unread += chunk
        *lines, self._unread = self._unread.split(b"\n")
        evaluations = []
        for line in lines:
            steps, _, text = line.decode().partition(" ")
            self.steps = int(steps)
            if text:
                self.score = text.split()[1]  # evaluation RETURN ...
                evaluations.append(f"step {steps}: {text}")
        if code is not None:
            os.close(self._reports)
            self.state = "stopped" if code in STOPPED else "failed" if code else "finished"
        return evaluations

    def result(self) -> str:
        """Says what it has reached."""
        try:
            return f"{self.steps} steps; {read_results(self.run.evaluations_path)}"
        except RunError:
            return f"{self.steps} steps; evaluations.csv is damaged, its figures cannot be read"

    def failure(self) -> str:
        """Says why it failed: its error message, or the end of what it printed."""
        code, text = self.process.returncode, self.process.printed().strip()
        if code < 0:
            name = signal.Signals(-code).name
            return f"its process died of {name}; it continues from its last checkpoint"
        _, error, message = f"\n{text}".rpartition("\nError: ")
        return message if error else f"exit code {code}\n{text[-_END_OF_OUTPUT:]}"


class Jobs:
    """Trains those jobs that are waiting.

    Args:
        jobs: All of them; those that are finished count in the progress.
        at_a_time: How many train at a time.
        signals: Say when to stop.
        progress: Whether to show a bar, in a terminal; otherwise evaluations are printed.
    """

    def __init__(
        self, jobs: Sequence[Job], at_a_time: int, signals: StopSignals, *, progress: bool
    ) -> None:
        self._jobs, self._at_a_time, self._signals = jobs, at_a_time, signals
        self._waiting = [job for job in jobs if job.state == "waiting"]
        self._running: list[Job] = []
        self._stopping = False
        self._failure = ""  # the last one, without the path of its run
        self._bar = tqdm(
            total=sum(job.run.config.steps for job in jobs),
            initial=sum(job.steps for job in jobs),
            unit=" steps",
            disable=None if progress else True,
            dynamic_ncols=True,
            smoothing=0.05,
            file=sys.stderr,
        )

    def run(self) -> None:
        """Trains until all have ended, or a signal has come and those that ran are saved.

        Raises:
            KeyboardInterrupt: If a second signal has come; then the processes are killed.
        """
        try:
            while self._running or (self._waiting and not self._signals.received):
                self._look()
                time.sleep(_TICK)
        except KeyboardInterrupt:
            for job in self._running:
                job.process.kill()
                job.process.wait()
            raise
        finally:
            with suppress(OSError):  # a terminal that has gone away
                self._bar.close()
            for job in self._running:  # after an error here they save themselves
                job.process.terminate()

    def _look(self) -> None:
        """Starts what is due, passes on what the processes report, and notices their ends."""
        if self._signals.received and not self._stopping:
            self._stopping = True
            if names := ", ".join(job.name for job in self._running):
                self._say(f"stopping once these are saved: {names} (a second Ctrl-C stops at once)")
            for job in self._running:
                job.process.terminate()
        while self._waiting and len(self._running) < self._at_a_time and not self._stopping:
            self._start(self._waiting.pop(0))
        for job in list(self._running):
            for evaluation in job.look():
                if self._bar.disable:
                    self._say(f"{job.name}: {evaluation}")
            if job.state != "running":
                self._running.remove(job)
                self._say(f"{job.name}: {self._ending(job)}")
        scores = [f"{job.name}: {job.score}" for job in self._running if job.score]
        with suppress(OSError):
            self._bar.set_postfix_str(", ".join(scores), refresh=False)
            self._bar.update(sum(job.steps for job in self._jobs) - self._bar.n)

    def _start(self, job: Job) -> None:
        try:
            job.start()
        except (OSError, ValueError) as error:
            job.state = "failed"
            self._say(f"{job.name}: cannot be started: {error}")
            return
        self._running.append(job)
        begins = f"continues at step {job.steps}" if job.steps else "begins"
        self._say(f"{job.name}: {begins}, log in {job.log}")

    def _ending(self, job: Job) -> str:
        if job.state == "finished":
            return f"finished: {job.result()}"
        if job.state == "stopped":
            return f"stopped at step {job.steps}"
        failure = job.failure()
        before, self._failure = self._failure, failure.replace(str(job.run.path), "")
        return "failed for the same reason" if self._failure == before else f"failed: {failure}"

    def _say(self, line: str) -> None:
        """Prints a line, above the bar."""
        with suppress(OSError), tqdm.external_write_mode(file=sys.stdout):
            tell(line)
