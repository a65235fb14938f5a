"""Searches for good settings: `eagerly tune td3 --env Pendulum-v1 --study s --space space.toml`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from click.core import ParameterSource

from eagerly.errors import RunError, UsageError
from eagerly.scripts.agent_commands import AgentCommands
from eagerly.scripts.batch import Batch, Planned, open_jobs, train_batch, wait_until_free
from eagerly.scripts.commands import FOLDER
from eagerly.scripts.flags import (
    SettingsCommand,
    command,
    format_seeds,
    options_of,
    parse_seeds,
)
from eagerly.scripts.job import Job
from eagerly.scripts.jobs import Jobs
from eagerly.scripts.output import log_to_terminal, tell
from eagerly.scripts.threads import threads_of_new_runs
from eagerly.storage.config import RunConfig
from eagerly.storage.evaluations import format_return
from eagerly.storage.presets import write_preset
from eagerly.storage.run import open_run
from eagerly.storage.run_settings import flag_words
from eagerly.studies.space import read_space
from eagerly.studies.study import (
    COMPLETE,
    FAILED,
    PRUNED,
    PRUNERS,
    RUNNING,
    Study,
    Trial,
    described,
    final_score,
    require_optuna,
)
from eagerly.training.signals import StopSignals

_WITHOUT = "without"  # directory of the final runs with the settings without search
_FAILURES = 3  # a study ends if that many trials fail and none succeeds


class _Commands(AgentCommands):
    COMMAND = "tune"

    def agent_command(self, agent: str, config: Any) -> click.Command:
        return SettingsCommand(
            agent,
            params=[
                *_options(),
                *(o for o in options_of(RunConfig, config.RUN_DEFAULTS) if o.name != "seed"),
                *options_of(config, {}),
            ],
            callback=lambda **values: _tune(agent, **values),
            help=f"Search for settings of {agent.upper()}. The same command continues a study.",
            short_help=f"Search for settings of {agent.upper()}.",
        )


def _options() -> list[click.Option]:
    positive = click.IntRange(min=1)
    return [
        click.Option(["--study"], type=FOLDER, required=True, help="Directory of the study."),
        click.Option(
            ["--space"],
            type=click.Path(path_type=Path, dir_okay=False),
            required=True,
            help="TOML file with one line per searched setting (docs/tuning.md).",
        ),
        click.Option(["--trials"], type=positive, default=50, help="Number of trials."),
        click.Option(
            ["--jobs"], type=positive, default=1, help="Number of runs trained at the same time."
        ),
        click.Option(
            ["--seeds"],
            type=parse_seeds,
            default="0",
            help="Seeds of the runs of each trial, such as 0..2. A trial is scored by their mean.",
        ),
        click.Option(
            ["--prune"],
            type=click.Choice(PRUNERS),
            default="median",
            help="Which trials end early: those below the median of the earlier ones, or none.",
        ),
        click.Option(
            ["--study-seed"], type=click.IntRange(min=0), default=0, help="Seed of the study."
        ),
        click.Option(
            ["--finalists"],
            type=click.IntRange(min=0),
            default=3,
            help="Number of best trials that are trained again with fresh seeds; 0: none.",
        ),
        click.Option(
            ["--fresh-seeds"],
            type=positive,
            default=5,
            help="Number of fresh seeds for the finalists and the settings without search.",
        ),
        click.Option(["--progress/--no-progress"], default=True, help="Show a progress bar."),
    ]


@click.group(cls=_Commands)
def main() -> None:
    """Search for settings of an agent with Optuna, in a study that survives any interruption."""


class Trials(Jobs):
    """Trains the trials of a study. A trial starts once the results that it depends on exist.

    Args:
        study: The study.
        given: Settings that all trials share, by name.
        count: Number of trials.
        threads: Thread counts of new runs, by setting.
        signals: Stop requests.
        progress: Whether to show a progress bar in a terminal.
    """

    def __init__(
        self,
        study: Study,
        given: Mapping[str, Any],
        count: int,
        threads: Mapping[str, int],
        signals: StopSignals,
        *,
        progress: bool,
    ) -> None:
        self.trials: list[Trial] = []
        self._study, self._given, self._count, self._threads = study, given, count, threads
        self._open: dict[int, list[Job]] = {}  # jobs of the trials that have not ended
        super().__init__([], study.jobs, signals, progress=progress)

    def more(self) -> Sequence[Job]:
        """Returns the jobs of all trials that depend only on trials that have ended."""
        found: list[Job] = []
        while (number := len(self.trials)) < self._count and not self._study.waits(
            number, self.trials
        ):
            found += self._next()
        return found

    def _next(self) -> list[Job]:
        """Proposes the next trial and returns its unfinished jobs."""
        study, number = self._study, len(self.trials)
        self.trials.append(study.propose(number, self.trials))
        given = study.given(self.trials[number].drawn)
        self._say(f"trial {number}: {described(given)}")
        runs = _planned(f"trial {number}", study.runs(number), study, {**self._given, **given})
        for run in runs:
            wait_until_free(run.path)
        trial = study.judged(self.trials[number], self.trials)
        if trial.state != RUNNING:
            self._end(trial)
            return []
        try:
            jobs = open_jobs(Batch(runs, study.path, "", "", study.jobs), self._threads)
        except UsageError as error:
            if any(run.path.exists() for run in runs):
                raise
            # The values are incompatible with each other.
            study.record_failure(number, str(error))
            self._say(f"trial {number}: {error}")
            self._end(study.judged(self.trials[number], self.trials))
            return []
        runs[0].path.parent.mkdir(parents=True, exist_ok=True)
        self._open[number] = jobs
        return [job for job in jobs if job.state == "waiting"]

    def changed(self, job: Job) -> None:
        """Ends the trial of a job if its result is known."""
        for number in [number for number, jobs in self._open.items() if job in jobs]:
            self._judge(number)

    def _judge(self, number: int) -> None:
        """Ends a trial if its result is known. The other runs of the trial are then stopped."""
        jobs = self._open[number]
        for job in jobs:
            if job.state == "failed" and job.process.returncode < 0:
                raise RunError(f"{job.name}: {job.failure()}. Continue with the same command")
            if job.state == "failed":
                self._study.record_failure(number, job.failure())
        trial = self._study.judged(self.trials[number], self.trials)
        if trial.state == RUNNING:
            return
        for job in jobs:
            if job.state == "running":
                job.process.terminate()
            elif job.state == "waiting":
                job.state = "stopped"
        self._waiting = [job for job in self._waiting if job.state == "waiting"]
        if not any(job.state == "running" for job in jobs):
            del self._open[number]
            self._end(trial)

    def _end(self, trial: Trial) -> None:
        self.trials[trial.number] = trial
        at = f" at step {max(trial.values)}" if trial.state == PRUNED else ""
        score = "" if trial.score is None else f", score {format_return(trial.score)}"
        self._say(f"trial {trial.number}: {trial.state}{at}{score}")
        ended = [each for each in self.trials if each.state != RUNNING]
        if len(ended) >= _FAILURES and all(each.state == FAILED for each in ended):
            raise RunError(f"the first {len(ended)} trials failed; see the messages above")


def _planned(
    name: str, paths: Sequence[Path], study: Study, given: Mapping[str, Any]
) -> list[Planned]:
    """Returns runs that differ only in the seed, which is the end of the name of each path."""
    seeds = [int(path.name.rpartition("-")[2]) for path in paths]
    return [
        Planned(f"{name}, seed {seed}", path, study.agent, {**given, "seed": seed})
        for path, seed in zip(paths, seeds, strict=True)
    ]


def _tune(
    agent: str,
    *,
    study: Path,
    space: Path,
    trials: int,
    jobs: int,
    seeds: tuple[int, ...],
    prune: str,
    study_seed: int,
    finalists: int,
    fresh_seeds: int,
    progress: bool,
    **values: Any,
) -> None:
    require_optuna()
    log_to_terminal()
    source = click.get_current_context().get_parameter_source
    given = {n: v for n, v in values.items() if source(n) != ParameterSource.DEFAULT}
    dimensions = read_space(space, agent)
    if both := sorted(dimensions.keys() & given.keys()):
        raise click.UsageError(f"{both[0]} is both an option and a line of {space}: omit one")
    found = Study(
        study,
        agent,
        given,
        dimensions,
        seeds=seeds,
        jobs=jobs,
        pruner=prune,
        seed=study_seed,
    )
    open_run(None, agent, {**given, "seed": seeds[0]})  # reports invalid settings at once
    found.open()
    words = ["--study", str(study), "--space", str(space), "--trials", str(trials)]
    words += ["--jobs", str(jobs), "--seeds", format_seeds(seeds), "--prune", prune]
    words += ["--study-seed", str(study_seed), "--finalists", str(finalists)]
    words += ["--fresh-seeds", str(fresh_seeds), *flag_words(given)]
    again = command("tune.py", agent, *words)
    tell(f"{'study':<14}{study}, {trials} trials, {jobs} runs at a time, prune {prune}")
    tell(f"{'continue with':<14}{again}")
    folders = [path.parent for number in range(trials) for path in found.runs(number)]
    threads, _ = threads_of_new_runs([given.keys()], folders, jobs)
    with StopSignals() as signals:
        running = Trials(found, given, trials, threads, signals, progress=progress)
        running.run()
    trials_ = running.trials
    ended = sum(trial.state != RUNNING for trial in trials_)
    if ended < trials:
        assert signals.received
        tell(f"stopped by {signals.received.name}: {ended} of {trials} trials have ended")
        tell(f"continue  {again}")
        sys.exit(128 + signals.received)
    tell(f"{'digest':<14}{found.digest(trials_)}")
    if finalists:
        _train_finalists(found, trials_, given, finalists, fresh_seeds, again, progress)


def _train_finalists(
    study: Study,
    trials: Sequence[Trial],
    given: Mapping[str, Any],
    count: int,
    fresh: int,
    again: str,
    progress: bool,
) -> None:
    """Trains the best trials and the settings without search on fresh seeds, and compares them."""
    from eagerly.curves.estimates import difference

    complete = [t for t in trials if t.state == COMPLETE and t.score is not None]
    if not complete:
        raise RunError(f"no trial is complete: {len(trials)} were pruned or failed")
    best = sorted(complete, key=lambda trial: -(trial.score or 0.0))[:count]
    groups = {_WITHOUT: dict(given)}
    groups |= {f"trial-{t.number:04d}": {**given, **study.given(t.drawn)} for t in best}
    seeds = range(max(study.seeds) + 1, max(study.seeds) + 1 + fresh)
    paths = {n: [study.path / "final" / n / f"seed-{seed}" for seed in seeds] for n in groups}
    runs = [run for n in groups for run in _planned(n, paths[n], study, groups[n])]
    title = f"{len(best)} finalists and the settings without search"
    train_batch(Batch(runs, study.path / "final", title, again, study.jobs), progress=progress)
    scores = {n: np.array([final_score(path) for path in paths[n]]) for n in groups}
    winner = max((n for n in groups if n != _WITHOUT), key=lambda n: scores[n].mean())
    is_better = False
    for name, found in scores.items():
        text = f"{name:<14}mean {format_return(float(found.mean()))} over {fresh} fresh seeds"
        if name != _WITHOUT:
            gain = difference(found, scores[_WITHOUT])
            text += f", difference {gain} (interquartile means, 95 %)"
            is_better |= bool(gain.low > 0)
        tell(text)
    if not is_better:
        tell("no finalist is better than the settings without search with 95 % confidence")
    target = study.path / "best.toml"
    write_preset(target, open_run(paths[winner][0], None, {}))
    tell(f"{'preset':<14}{target}: {described(study.given(trials[int(winner[-4:])].drawn))}")
    words = [study.agent, "--env", str(given["env"]), "--preset", str(target)]
    tell(f"{'use with':<14}{command('train.py', *words)}")
