"""Trains several runs, several at a time, and resumes them after an interruption."""

from __future__ import annotations

import dataclasses
import logging
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eagerly.errors import RunError, UsageError
from eagerly.scripts.flags import command
from eagerly.scripts.job import Job, log_of
from eagerly.scripts.jobs import Jobs
from eagerly.scripts.output import Failure, echo, tell
from eagerly.scripts.threads import described_threads, threads_of_new_runs
from eagerly.storage.files import RunFiles
from eagerly.storage.lock import RunLock, is_locked, is_locked_for_child
from eagerly.storage.manifest import finished_by, published
from eagerly.storage.run import open_run
from eagerly.storage.tracking import check_tracker
from eagerly.training.run_processes import train_command
from eagerly.training.signals import StopSignals

_PATIENCE = 60.0  # seconds that processes of a killed command have to save and exit


@dataclass(frozen=True)
class Planned:
    """A run to train.

    Attributes:
        name: Name of the run in messages.
        path: The run directory.
        agent: Name of the agent.
        given: Settings by name.
    """

    name: str
    path: Path
    agent: str
    given: Mapping[str, Any]


@dataclass(frozen=True)
class Batch:
    """Runs that one command trains.

    Attributes:
        runs: The runs, all in `folder`.
        folder: Parent of the run directories, or of their parents.
        title: The runs as text, such as "seeds 0..4".
        again: The command that resumes all runs.
        jobs: Maximum number of runs trained at the same time.
        override: Whether settings may differ from the saved ones.
        trust: Whether to apply all settings of the run directories, even if another user created
            these directories.
        profile_calls: Number of train body calls that each run traces.
    """

    runs: Sequence[Planned]
    folder: Path
    title: str
    again: str
    jobs: int
    override: bool = False
    trust: bool = False
    profile_calls: int = 0

    @property
    def at_a_time(self) -> int:
        """The number of runs trained at the same time."""
        return min(self.jobs, len(self.runs))


def train_batch(batch: Batch, *, progress: bool = True) -> None:
    """Trains or resumes the runs and prints a table of their scores.

    Options and settings are validated before any process starts.

    Args:
        batch: The runs and their options.
        progress: Whether to show a progress bar in a terminal.

    Raises:
        RunError: If a run cannot be opened with these settings.
        Failure: If a run fails; the other runs are trained first.
        SystemExit: If a signal requests a stop; all runs are saved first.
    """
    check_folder(batch.folder)
    for each in batch.runs:  # first, since a process may still write files read below
        wait_until_free(each.path)
    threads, why = threads_of_new_runs(
        [each.given.keys() for each in batch.runs],
        {each.path.parent for each in batch.runs},
        batch.at_a_time,
    )
    jobs = open_jobs(batch, threads)
    try:
        for each in batch.runs:  # the logs are next to the run directories
            each.path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{batch.folder} cannot be created: {error}") from error
    tell(f"{'runs':<14}{batch.folder}, {batch.title}, {batch.at_a_time} at a time")
    tell(f"{'threads':<14}{described_threads([job.run for job in jobs], why)}")
    tell(f"{'resume with':<14}{batch.again}")
    for job in jobs:
        if job.state == "finished":
            tell(f"{job.name}: already finished: {job.result()}")
    with StopSignals() as signals:
        try:
            Jobs(jobs, batch.at_a_time, signals, progress=progress).run()
        except KeyboardInterrupt:  # raised by a second signal
            raise KeyboardInterrupt(
                f"stopped immediately. Resume from the last checkpoints with {batch.again}"
            ) from None
    _end(batch, jobs, signals)


def check_folder(folder: Path) -> None:
    """Raises a `RunError` if a path cannot be the parent of run directories."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is not a directory: choose another --run-dir")
    if RunFiles(folder).is_file("config.json"):
        raise UsageError(
            f"--run-dir must be the parent of the run directories; got {folder}, which is a run "
            "directory: choose another"
        )


def open_jobs(batch: Batch, threads: Mapping[str, int]) -> list[Job]:
    """Opens the runs, which validates their settings, and returns their jobs.

    Args:
        batch: The runs.
        threads: Thread counts of new runs, by setting.
    """
    words = ["--override"] * batch.override + ["--trust"] * batch.trust
    words += ["--profile-calls", str(batch.profile_calls)] * (batch.profile_calls > 0)
    jobs, checked = [], set()
    with _each_line_once():
        for each in batch.runs:
            given = dict(each.given)
            options = {"override": batch.override, "trust": batch.trust}
            run = open_run(each.path, each.agent, given, **options)
            check_tracker(run.config.track)
            if run.is_new:  # existing runs keep their thread counts
                given |= {name: count for name, count in threads.items() if name not in given}
                counts = {name: given[name] for name in threads}
                run.config = dataclasses.replace(run.config, **counts)
                if run.config.env not in checked:
                    run.environment()  # reports a missing environment once, not once per process
                    checked.add(run.config.env)
            more = "--run-dir", str(each.path), "--no-progress", *words
            job = Job(each.name, run, train_command(each.agent, given, *more))
            if manifests := published(run.path):
                job.steps = manifests[-1].steps
                # A finished run whose settings are overridden is not skipped: its process reports
                # the error.
                reached = finished_by(run.path, manifests[-1], run.config, run.last_override)
                job.state = "finished" if reached and not run.overridden else "waiting"
            jobs.append(job)
    return jobs


@contextmanager
def _each_line_once() -> Iterator[None]:
    """Drops repeated log messages while runs are opened."""
    seen: set[str] = set()

    def is_new(record: logging.LogRecord) -> bool:
        known = len(seen)
        seen.add(record.getMessage())
        return len(seen) > known

    logger = logging.getLogger(open_run.__module__)
    logger.addFilter(is_new)
    try:
        yield
    finally:
        logger.removeFilter(is_new)


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


def _end(batch: Batch, jobs: Sequence[Job], signals: StopSignals) -> None:
    """Prints the scores or the command to resume, and sets the exit code."""
    missing = [job for job in jobs if job.state != "finished"]
    if signals.received and missing:
        where = ", ".join(
            f"{job.name} at step {job.steps} of {job.run.config.steps}" for job in jobs
        )
        tell(f"stopped by {signals.received.name}: {where}")
        tell(f"resume    {batch.again}")
        sys.exit(128 + signals.received)
    if len(missing) < len(jobs):
        from eagerly.scripts.plot import print_table

        paths = [job.run.path for job in jobs if job not in missing]
        try:
            print_table(paths, trust=batch.trust)
        except (RunError, ValueError, OSError) as error:
            if not missing:
                raise Failure(error) from error
            echo(f"the score table cannot be printed: {error}", err=True)
        folder = batch.folder
        tell(f"curves    {command('plot.py', str(folder), '-o', str(folder / 'curves.png'))}")
    if missing:
        logs = ", ".join(f"{job.name} ({job.log})" for job in missing)
        raise Failure(
            f"{len(missing)} of {len(jobs)} runs are not finished: {logs}. Resume them with "
            f"{batch.again}"
        )
