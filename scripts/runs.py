"""Lists runs: `runs.py`, or `runs.py FOLDER ...`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import click

from eagerly.errors import RunError
from eagerly.importing import FACTORY
from eagerly.sanitizing import sanitize
from eagerly.scripts.commands import Command
from eagerly.scripts.flags import command
from eagerly.scripts.output import TRUST_HELP, echo
from eagerly.storage.config import hardware_defaults
from eagerly.storage.evaluations import format_return
from eagerly.storage.files import RUNS
from eagerly.storage.listing import RunSummary, runs_below
from eagerly.storage.run import Run, open_run
from eagerly.storage.run_settings import flag_words, new_run_defaults


@click.command(cls=Command)
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--command",
    "of_run",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="RUN",
    help="Print the command that trains the same run again in a new directory.",
)
@click.option("--trust", is_flag=True, help=f"Requires --command. {TRUST_HELP}")
@click.option(
    "--sort",
    type=click.Choice(["name", "best", "score", "steps"]),
    default="name",
    help="Sort key; best, score and steps sort in descending order.",
)
@click.option("--env", multiple=True, help="Environment to list; can be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
def main(
    folders: tuple[Path, ...],
    of_run: Path | None,
    trust: bool,
    sort: str,
    env: tuple[str, ...],
    as_json: bool,
) -> None:
    """List the runs in FOLDERS (default: runs/) with their environment, progress and returns.

    The state is `running`, `finished`, `stopped`, `not begun` or `damaged`. The best return is that
    of the best evaluation since the first update and the last override. The score is the mean
    return of the last 3 of these evaluations. Evaluations that resuming discards do not count.
    """
    if of_run is None and trust:
        raise click.UsageError("--trust requires --command")
    if of_run is not None and (folders or env or as_json or sort != "name"):
        raise click.UsageError(
            "--command prints the command of a single run: omit FOLDERS, --sort, --env and --json"
        )
    if of_run is not None:
        _print_command(open_run(of_run, None, {}, trust=trust))
        return
    found = [run for folder in folders or (RUNS,) for run in runs_below(folder)]
    found = [run for run in found if not env or run.env in env]
    if sort != "name":
        last = -math.inf  # for runs without this value
        found.sort(key=lambda run: last if (v := getattr(run, sort)) is None else v, reverse=True)
    if as_json:
        rows = [{"run_dir": str(run.path), **vars(run)} for run in found]
        click.echo(json.dumps([{n: v for n, v in row.items() if n != "path"} for row in rows]))
    elif found:
        _print_table(found)
    else:
        of = f" of {', '.join(env)}" if env else ""
        echo(f"no runs{of} in {', '.join(map(str, folders or (RUNS,)))}", err=True)


def _print_table(found: Sequence[RunSummary]) -> None:
    rows = [["run", "environment", "agent", "seed", "steps", "of", "best", "score", "state"]]
    for run in found:
        returns = ["" if v is None else format_return(v) for v in (run.best, run.score)]
        counts = [str(run.seed), f"{run.steps:,}", f"{run.of_steps:,}"]
        problem = run.problem.removeprefix(f"{run.path}/")
        state = f"{run.state}: {problem}" if problem else run.state
        *names, state = (
            sanitize(text, lines=False) for text in (str(run.path), run.env, run.agent, state)
        )
        rows.append([*names, *counts, *returns, state])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    numbers = range(3, 8)
    for row in rows:
        cells = (
            cell.rjust(width) if place in numbers else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        echo("  ".join(cells).rstrip())


def _print_command(run: Run) -> None:
    """Prints the command that repeats a run, with all settings that differ from the defaults."""
    settings = run.settings()
    from_python = [
        name
        for name, value in settings.items()
        if any(str(v).startswith(FACTORY) for v in (value if isinstance(value, tuple) else [value]))
    ]
    if from_python:
        raise RunError(
            f"{run.path} was trained from Python with a factory for {', '.join(from_python)}, "
            "which the command line cannot pass"
        )
    defaults = new_run_defaults(run.agent)
    # With --hardware, these have other defaults, which depend on each other.
    shown = hardware_defaults({}) if settings["hardware"] else {}
    idle = run.config.without_effect() | run.agent_config.without_effect()
    changed = {
        name: value
        for name, value in settings.items()
        if (value != defaults[name] or name in shown) and name not in idle
    }
    echo(command("train.py", run.agent, "--preset", "defaults", *flag_words(changed)))
    if steps := run.overridden_at():
        echo(
            f"{run.path} had different settings before step {', '.join(map(str, steps))}: the "
            "command uses the latest settings from the start",
            err=True,
        )


if __name__ == "__main__":
    main()
