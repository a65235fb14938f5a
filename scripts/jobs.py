"""Trains several runs in parallel, each in its own process, and shows their progress."""

from __future__ import annotations

import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from tqdm import tqdm

from eagerly.scripts.job import Job, gpus
from eagerly.scripts.output import tell
from eagerly.training.signals import StopSignals, Terminated

_TICK = 0.1  # seconds between polls of the processes


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
        self._gpus = gpus()
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
        # By default, a second SIGTERM would end this process without its children.
        self._signals.then = lambda: signal.signal(signal.SIGTERM, _terminated)
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
        used = Counter(gpu for other in self._running for gpu in other.gpu.split(","))
        count = job.run.agent_config.replicas  # each replica uses one
        job.gpu = ",".join(sorted(self._gpus, key=used.__getitem__)[:count])
        try:
            job.start()
        except (OSError, ValueError) as error:
            job.state, job.problem = "failed", f"cannot be started: {error}"
            self._say(f"{job.name}: {job.problem}")
            self.changed(job)
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


def _terminated(number: int, frame: object) -> None:
    raise Terminated(number)
