"""Trains several runs, several at a time, and resumes them after an interruption."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eagerly.errors import RunError, UsageError
from eagerly.scripts.flags import command
from eagerly.scripts.job import Job, wait_until_free
from eagerly.scripts.jobs import Jobs
from eagerly.scripts.output import Failure, echo, tell
from eagerly.scripts.threads import described_threads, threads_of_new_runs
from eagerly.storage.config import NO_EVALUATIONS, RunConfig
from eagerly.storage.files import RunFiles
from eagerly.storage.manifest import check_total, finished_by, published
from eagerly.storage.run import open_run
from eagerly.storage.run_document import check_path
from eagerly.storage.tracking import check_tracker
from eagerly.training.run_processes import train_command
from eagerly.training.signals import StopSignals


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

    Args:
        batch: The runs and their options.
        progress: Whether to show a progress bar in a terminal.

    Raises:
        RunError, Failure, SystemExit: As in `run_batch`.
        Failure: If a run fails; the other runs are trained first.
    """
    jobs = run_batch(batch, progress=progress)
    finished = [job for job in jobs if job.state == "finished"]
    if finished:
        from eagerly.scripts.plot import print_table

        try:
            print_table([job.run.path for job in finished], trust=batch.trust)
        except (RunError, ValueError, OSError) as error:
            if len(finished) == len(jobs):
                raise Failure(error) from error
            echo(f"the score table cannot be printed: {error}", err=True)
        folder = batch.folder
        words = [str(folder), "-o", str(folder / "curves.png")]
        if all(job.run.config.evaluations == NO_EVALUATIONS for job in finished):
            words += ["--metric", "training/return_mean"]
        tell(f"curves    {command('plot.py', *words)}")
    check_finished(batch, jobs, finished)


def check_finished(batch: Batch, jobs: Sequence[Job], done: Sequence[Job]) -> None:
    """Raises a `Failure` that names the jobs that are not done, and the command to resume them."""
    if missing := [job for job in jobs if job not in done]:
        logs = ", ".join(f"{job.name} ({job.log})" for job in missing)
        raise Failure(
            f"{len(missing)} of {len(jobs)} runs are not finished: {logs}. Resume them with "
            f"{batch.again}"
        )


def run_batch(batch: Batch, *, progress: bool = True) -> list[Job]:
    """Trains or resumes the runs.

    Options and settings are validated before any process starts.

    Args:
        batch: The runs and their options.
        progress: Whether to show a progress bar in a terminal.

    Returns:
        The jobs, each of which is finished or has failed.

    Raises:
        RunError: If a run cannot be opened with these settings.
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
        except KeyboardInterrupt as stopped:  # raised by a second signal
            stopped.args = (
                f"stopped immediately. Resume from the last checkpoints with {batch.again}",
            )
            raise
    if signals.received and any(job.state != "finished" for job in jobs):
        where = ", ".join(
            f"{job.name} at step {job.steps} of {job.run.config.steps}" for job in jobs
        )
        tell(f"stopped by {signals.received.name}: {where}")
        tell(f"resume    {batch.again}")
        sys.exit(128 + signals.received)
    return jobs


def check_folder(folder: Path, option: str = "--run-dir") -> None:
    """Raises a `RunError` if the path given by an option cannot be the parent of runs."""
    check_path(folder)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is not a directory: choose another {option}")
    if RunFiles(folder).is_file("config.json"):
        raise UsageError(
            f"{option} must be the parent of the run directories; got {folder}, which is a run "
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
    for each in batch.runs:
        given = dict(each.given)
        options = {"override": batch.override, "trust": batch.trust}
        run = open_run(each.path, each.agent, given, **options)
        check_tracker(run.config.track)
        check_robot(run.config, batch.at_a_time)
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
            check_total(run.path, manifests[-1], run.config)
            # A finished run whose settings are overridden is not skipped: its process reports the
            # error.
            reached = finished_by(run.path, manifests[-1], run.config, run.last_override)
            job.state = "finished" if reached and not run.overridden else "waiting"
        jobs.append(job)
    return jobs


def check_robot(config: RunConfig, jobs: int) -> None:
    """Raises a `RunError` if several runs at a time would move the same robot."""
    if config.hardware and jobs > 1:
        raise UsageError("--hardware trains in a single environment: omit --jobs")
