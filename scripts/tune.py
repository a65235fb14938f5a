"""Searches for good settings: `eagerly tune td3 --env Pendulum-v1 --study s --space space.toml`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from eagerly.errors import UsageError
from eagerly.scripts.agent_commands import AgentCommands
from eagerly.scripts.batch import check_folder, check_robot
from eagerly.scripts.commands import FOLDER
from eagerly.scripts.finalists import train_finalists
from eagerly.scripts.flags import SettingsCommand, command, format_seeds, options_of, parse_seeds
from eagerly.scripts.output import log_to_terminal, tell
from eagerly.scripts.threads import threads_of_new_runs
from eagerly.scripts.trials import Trials
from eagerly.storage.config import NO_EVALUATIONS, RESUMABLE, RunConfig
from eagerly.storage.run import open_run
from eagerly.storage.run_settings import flag_words
from eagerly.storage.tracking import check_tracker
from eagerly.studies.sampling import require_optuna
from eagerly.studies.space import Space, read_space
from eagerly.studies.study import PRUNERS, Study
from eagerly.studies.trials import RUNNING
from eagerly.training.signals import StopSignals

_EVALUATIONS = 3  # fewest evaluations of a run


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
            help="TOML file with one line per searched setting.",
        ),
        click.Option(["--trials"], type=positive, default=50, help="Number of trials."),
        click.Option(
            ["--jobs"], type=positive, default=1, help="Number of runs trained at the same time."
        ),
        click.Option(
            ["--seeds"],
            type=parse_seeds,
            metavar="SEEDS",
            default="0",
            help="Seeds of the runs of each trial, such as 0..2. A trial is scored by their mean.",
        ),
        click.Option(
            ["--prune"],
            type=click.Choice(PRUNERS),
            default="median",
            help="Trials that end early, after five complete ones: those below the median, or "
            "none.",
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
            type=click.IntRange(min=2),
            default=5,
            help="Fresh seeds for the finalists and the settings without search.",
        ),
        click.Option(["--progress/--no-progress"], default=True, help="Show a progress bar."),
    ]


@click.group(cls=_Commands)
def main() -> None:
    """Search for settings of an agent with Optuna, in a study that survives any interruption."""


def _check(config: RunConfig, space: Space) -> None:
    """Raises a `RunError` if runs with these settings cannot be scored or compared."""
    check_tracker(config.track)
    if config.evaluations == NO_EVALUATIONS:
        raise UsageError("a study scores its runs by evaluations: omit --evaluations none")
    if config.stop_at_return is not None:
        raise UsageError(
            "a study must not have --stop-at-return, because scores of shorter runs are not "
            "comparable: omit it"
        )
    if config.steps < _EVALUATIONS * config.evaluate_every_steps:
        raise UsageError(
            f"each run of a study must have at least {_EVALUATIONS} evaluations; got --steps "
            f"{config.steps} and --evaluate-every-steps {config.evaluate_every_steps}"
        )
    collects = not config.offline and "warmup_steps" not in space
    if collects and config.steps <= config.warmup_steps:
        raise UsageError(
            f"--steps must be above --warmup-steps; got {config.steps} and {config.warmup_steps}: "
            "otherwise, nothing is learned"
        )


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
    check_folder(study, "--study")
    last = max(seeds) + fresh_seeds * (finalists > 0)  # the largest seed of all runs
    template = open_run(None, agent, {**given, "seed": last})  # reports invalid settings
    _check(template.config, dimensions)
    check_robot(template.config, jobs)
    template.environment()  # reports an environment that cannot be used
    left_out = {*RESUMABLE, *dimensions, "seed"} - {"steps"}
    shared = {n: value for n, value in template.settings().items() if n not in left_out}
    found = Study(
        study, agent, shared, dimensions, seeds=seeds, jobs=jobs, pruner=prune, seed=study_seed
    )
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
        running = Trials(found, given, trials, threads, again, signals, progress=progress)
        running.run()
    ended = sum(trial.state != RUNNING for trial in running.trials)
    if signals.received and (finalists or ended < trials):
        tell(f"stopped by {signals.received.name}: {ended} of {trials} trials have ended")
        tell(f"continue  {again}")
        sys.exit(128 + signals.received)
    tell(f"{'digest':<14}{found.digest(running.trials)}")
    if finalists:
        train_finalists(
            found,
            running.trials,
            given,
            count=finalists,
            fresh=fresh_seeds,
            again=again,
            progress=progress,
        )
