"""Trains several runs in parallel, each in its own process, and shows their progress."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from eagerly.errors import RunError
from eagerly.scripts.output import tell
from eagerly.storage.lock import lock_for_child
from eagerly.storage.run import Run
from eagerly.storage.run_document import read_document_of, results_of
from eagerly.training.run_processes import STOPPED, TrainingProcess
from eagerly.training.signals import StopSignals

_GPUS = Path("/proc/driver/nvidia/gpus")  # has one directory per GPU
_TICK = 0.1  # seconds between polls of the processes
_END_OF_OUTPUT = 2000  # characters of output shown if a process fails without an error message


def log_of(run: Path) -> Path:
    """Returns the log path of a run that `Job` trains, next to the run directory."""
    return run.with_name(f"{run.name}.log")


def gpus() -> list[str]:
    """Returns the GPUs that this process may use, as in CUDA_VISIBLE_DEVICES, if it has several."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        found = [str(number) for number, _ in enumerate(_GPUS.glob("*"))]
    else:
        found = [name.strip() for name in listed.split(",")]
    return found if len(found) > 1 else []


@dataclass
class Job:
    """A run that is trained in its own process.

    Attributes:
        name: Name of the run in messages.
        run: The run, opened before any process is started.
        command: Command that trains the run.
        steps: Last known number of completed environment steps.
        score: Return of the latest evaluation.
        state: "waiting", "running", "stopped", "failed" or "finished".
        gpu: The only GPU that the process may use, as in CUDA_VISIBLE_DEVICES; "" for all.
    """

    name: str
    run: Run
    command: list[str]
    steps: int = 0
    score: str = ""
    state: str = "waiting"
    gpu: str = ""
    _process: TrainingProcess | None = None
    _reports: int = -1  # read end of the progress pipe
    _unread: bytes = b""

    @property
    def log(self) -> Path:
        """The file that receives the output of the process, next to the run directory."""
        return log_of(self.run.path)

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
        try:
            path = self.run.path  # the process may have added an override
            return f"{self.steps} steps; {results_of(path, read_document_of(path)['history'])}"
        except RunError:
            return f"{self.steps} steps; evaluations.csv is damaged and cannot be read"

    def failure(self) -> str:
        """Returns the cause of a failure: the signal, error message, or end of the output."""
        code, text = self.process.returncode, self.process.printed().strip()
        if code < 0:
            name = signal.Signals(-code).name
            return f"process killed by {name}; the run can resume from its last checkpoint"
        _, error, message = f"\n{text}".rpartition("\nError: ")
        return message if error else f"exit code {code}\n{text[-_END_OF_OUTPUT:]}"


class Jobs:
    """Runs the waiting jobs, a limited number at a time.

    Subclasses may add jobs in `more` and react to changes of jobs in `changed`.

    Args:
        jobs: All jobs. Finished jobs count toward the progress.
        at_a_time: Maximum number of jobs running at the same time.
        signals: Stop requests.
        progress: Whether to show a progress bar in a terminal. Without a bar, evaluations are
            printed.
    """

    def __init__(
        self, jobs: Sequence[Job], at_a_time: int, signals: StopSignals, *, progress: bool
    ) -> None:
        self._jobs, self._at_a_time, self._signals = list(jobs), at_a_time, signals
        self._waiting = [job for job in jobs if job.state == "waiting"]
        self._running: list[Job] = []
        self._gpus = gpus() if at_a_time > 1 else []
        self._stopping = False
        self._failure = ""  # latest failure message without the run's path, to detect repeats
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
        """Runs until all jobs have ended, or until a signal arrives and all running jobs are saved.

        Raises:
            KeyboardInterrupt: If a second signal arrives; the processes are killed.
        """
        try:
            self._add()
            while self._running or (self._waiting and not self._signals.received):
                self._look()
                self._add()
                time.sleep(_TICK)
        except KeyboardInterrupt:
            for job in self._running:
                job.process.kill()
                job.process.wait()
            raise
        finally:
            with suppress(OSError):  # the terminal is gone
                self._bar.close()
            for job in self._running:  # after an error, SIGTERM makes running jobs save
                job.process.terminate()

    def more(self) -> Sequence[Job]:
        """Returns further jobs, which depend on the results of earlier ones."""
        return ()

    def changed(self, job: Job) -> None:
        """Called after a job has reported an evaluation or has ended."""

    def _add(self) -> None:
        found = [] if self._signals.received else list(self.more())
        self._jobs += found
        self._waiting += [job for job in found if job.state == "waiting"]
        self._bar.total = sum(job.run.config.steps for job in self._jobs)

    def _look(self) -> None:
        """Starts waiting jobs, shows new progress, and handles jobs that have ended."""
        if self._signals.received and not self._stopping:
            self._stopping = True
            if names := ", ".join(job.name for job in self._running):
                self._say(f"stopping after saving {names} (a second Ctrl-C stops immediately)")
            for job in self._running:
                job.process.terminate()
        while self._waiting and len(self._running) < self._at_a_time and not self._stopping:
            self._start(self._waiting.pop(0))
        for job in list(self._running):
            evaluations = job.look()
            for evaluation in evaluations:
                if self._bar.disable:
                    self._say(f"{job.name}: {evaluation}")
            if job.state != "running":
                self._running.remove(job)
                self._say(f"{job.name}: {self._ending(job)}")
            if evaluations or job.state != "running":
                self.changed(job)
        scores = [f"{job.name}: {job.score}" for job in self._running if job.score]
        with suppress(OSError):
            self._bar.set_postfix_str(", ".join(scores), refresh=False)
            self._bar.update(sum(job.steps for job in self._jobs) - self._bar.n)

    def _start(self, job: Job) -> None:
        used = Counter(other.gpu for other in self._running)
        job.gpu = min(self._gpus, key=used.__getitem__, default="")
        try:
            job.start()
        except (OSError, ValueError) as error:
            job.state = "failed"
            self._say(f"{job.name}: cannot be started: {error}")
            return
        self._running.append(job)
        begins = f"resumes at step {job.steps}" if job.steps else "starts"
        self._say(f"{job.name}: {begins}, log: {job.log}")

    def _ending(self, job: Job) -> str:
        if job.state == "finished":
            return f"finished: {job.result()}"
        if job.state == "stopped":
            return f"stopped at step {job.steps}"
        failure = job.failure()
        before, self._failure = self._failure, failure.replace(str(job.run.path), "")
        return "failed for the same reason" if self._failure == before else f"failed: {failure}"

    def _say(self, line: str) -> None:
        """Prints a line above the progress bar."""
        with suppress(OSError), tqdm.external_write_mode(file=sys.stdout):
            tell(line)
