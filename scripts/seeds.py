"""Trains one run per seed, several at a time: `eagerly train td3 --seeds 0..4 --jobs 2`."""

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

import click

from eagerly.errors import RunError, UsageError
from eagerly.scripts.flags import command, format_seeds, parse_seeds
from eagerly.scripts.jobs import Job, Jobs, log_of
from eagerly.scripts.output import Failure, echo, tell
from eagerly.scripts.threads import described_threads, threads_of_new_runs
from eagerly.storage.files import RUNS, RunFiles
from eagerly.storage.lock import RunLock, is_locked, is_locked_for_child
from eagerly.storage.manifest import finished_by, published
from eagerly.storage.run import open_run, readable_name
from eagerly.storage.run_settings import flag_words
from eagerly.training.run_processes import train_command
from eagerly.training.signals import StopSignals

_PATIENCE = 60.0  # seconds that processes of a killed command have to save and exit


def seed_options() -> list[click.Option]:
    """Returns the options for training several seeds."""
    return [
        click.Option(
            ["--seeds"],
            type=parse_seeds,
            metavar="SEEDS",
            help="Seeds, such as 0..4 or 0,3,7: train one run per seed in --run-dir/seed-N, then "
            "print a table of their scores. [default --run-dir: runs/AGENT-ENV]",
        ),
        click.Option(
            ["--jobs"],
            type=click.IntRange(min=1),
            help="Number of --seeds runs trained at the same time, sharing the cores. [default: 1]",
        ),
        click.Option(["--report-to"], type=int, hidden=True),
    ]


@dataclass(frozen=True)
class SeedPlan:
    """The options of runs that differ only in their seed.

    Attributes:
        agent: Name of the agent.
        seeds: The seed of each run.
        jobs: Maximum number of runs trained at the same time.
        folder: Parent of the run directories; None for `runs/AGENT-ENV`.
        typed: Settings shared by all runs, by name.
        override: Whether settings may differ from the saved ones.
        trust: Whether to apply all settings of the run directories, even if another user created
            these directories.
        profile_calls: Number of train body calls that each run traces.
    """

    agent: str
    seeds: Sequence[int]
    jobs: int
    folder: Path | None
    typed: Mapping[str, Any]
    override: bool = False
    trust: bool = False
    profile_calls: int = 0

    def __post_init__(self) -> None:
        if "seed" in self.typed:
            raise click.UsageError("--seeds and --seed are mutually exclusive: omit one")

    @property
    def at_a_time(self) -> int:
        """The number of runs trained at the same time."""
        return min(self.jobs, len(self.seeds))

    @property
    def words(self) -> list[str]:
        """The options passed to each run in addition to its settings."""
        words = ["--override"] * self.override + ["--trust"] * self.trust
        return words + ["--profile-calls", str(self.profile_calls)] * (self.profile_calls > 0)

    def again(self) -> str:
        """Returns the command that resumes all runs."""
        words = [*flag_words(self.typed), "--seeds", format_seeds(self.seeds)]
        words += ["--jobs", str(self.jobs)]
        words += [] if self.folder is None else ["--run-dir", str(self.folder)]
        return command("train.py", self.agent, *words, *self.words)


def train_seeds(plan: SeedPlan, *, progress: bool = True) -> None:
    """Trains or resumes the runs and prints a table of their scores.

    Options and settings are validated before any process starts.

    Args:
        plan: The options.
        progress: Whether to show a progress bar in a terminal.

    Raises:
        RunError: If a run cannot be opened with these settings.
        Failure: If a run fails; the other runs are trained first.
        SystemExit: If a signal requests a stop; all runs are saved first.
    """
    folder = _folder(plan)
    for seed in plan.seeds:  # first, since a process may still write files read below
        _wait_until_free(_run_path(folder, seed))
    threads, why = threads_of_new_runs(plan.typed, folder, plan.at_a_time)
    jobs = _planned(plan, folder, threads)
    for job in jobs:
        manifests = published(job.run.path)
        if manifests:
            job.steps = manifests[-1].steps
            # A finished run whose settings are overridden is not skipped: its process reports the
            # error.
            run = job.run
            reached = finished_by(run.path, manifests[-1], run.config, run.last_override)
            if reached and not run.overridden:
                job.state = "finished"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{folder} cannot be created: {error}") from error
    tell(f"{'runs':<14}{folder}, seeds {format_seeds(plan.seeds)}, {plan.at_a_time} at a time")
    tell(f"{'threads':<14}{described_threads([job.run for job in jobs], why)}")
    tell(f"{'resume with':<14}{plan.again()}")
    for job in jobs:
        if job.state == "finished":
            tell(f"{job.name}: already finished: {job.result()}")
    with StopSignals() as signals:
        try:
            Jobs(jobs, plan.at_a_time, signals, progress=progress).run()
        except KeyboardInterrupt:  # raised by a second signal
            raise KeyboardInterrupt(
                f"stopped immediately. Resume from the last checkpoints with {plan.again()}"
            ) from None
    _end(plan, jobs, signals)


def _folder(plan: SeedPlan) -> Path:
    """Returns the parent of the run directories. The same options give the same folder."""
    folder = plan.folder
    if folder is None:
        env = plan.typed.get("env")
        if not env:
            raise UsageError(
                "a new run needs an environment: pass --env, for example HalfCheetah-v5"
            )
        folder = RUNS / readable_name(plan.agent, env)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is not a directory: choose another --run-dir")
    if RunFiles(folder).is_file("config.json"):
        raise UsageError(
            f"with --seeds, --run-dir must be the parent of the run directories; got {folder}, "
            "which is a run directory: choose another"
        )
    return folder


def _run_path(folder: Path, seed: int) -> Path:
    return folder / f"seed-{seed}"


def _planned(plan: SeedPlan, folder: Path, threads: Mapping[str, Any]) -> list[Job]:
    """Opens the runs, which validates their settings, and returns their jobs."""
    jobs = []
    checked = False
    with _each_line_once():
        for seed in plan.seeds:
            path, given = _run_path(folder, seed), {**plan.typed, "seed": seed}
            run = open_run(path, plan.agent, given, override=plan.override, trust=plan.trust)
            if run.is_new:  # existing runs keep their thread counts
                given |= threads
                run.config = dataclasses.replace(run.config, **threads)
                if not checked:
                    run.environment()  # reports a missing environment once, not once per process
                    checked = True
            words = "--run-dir", str(path), "--no-progress", *plan.words
            jobs.append(Job(f"seed {seed}", run, train_command(plan.agent, given, *words)))
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


def _wait_until_free(run: Path) -> None:
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


def _end(plan: SeedPlan, jobs: Sequence[Job], signals: StopSignals) -> None:
    """Prints the scores or the command to resume, and sets the exit code."""
    missing = [job for job in jobs if job.state != "finished"]
    if signals.received and missing:
        where = ", ".join(
            f"{job.name} at step {job.steps} of {job.run.config.steps}" for job in jobs
        )
        tell(f"stopped by {signals.received.name}: {where}")
        tell(f"resume    {plan.again()}")
        sys.exit(128 + signals.received)
    if len(missing) < len(jobs):
        from eagerly.scripts.plot import print_table

        paths = [job.run.path for job in jobs if job not in missing]
        try:
            print_table(paths, trust=plan.trust)
        except (RunError, ValueError, OSError) as error:
            if not missing:
                raise Failure(error) from error
            echo(f"the score table cannot be printed: {error}", err=True)
        folder = paths[0].parent
        tell(f"curves    {command('plot.py', str(folder), '-o', str(folder / 'curves.png'))}")
    if missing:
        logs = ", ".join(f"{job.name} ({job.log})" for job in missing)
        raise Failure(
            f"{len(missing)} of {len(jobs)} runs are not finished: {logs}. Resume them with "
            f"{plan.again()}"
        )
