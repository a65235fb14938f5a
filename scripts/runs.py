"""Lists runs: `runs.py`, or `runs.py FOLDER ...`."""

from __future__ import annotations

from pathlib import Path

import click

from eagerly.errors import RunError
from eagerly.importing import FACTORY
from eagerly.scripts.commands import Command
from eagerly.scripts.flags import command
from eagerly.scripts.output import TRUST_HELP, echo, sanitize
from eagerly.storage.evaluations import format_return
from eagerly.storage.listing import runs_below
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
    type=click.Choice(["name", "best", "steps"]),
    default="name",
    help="Sort key; best and steps sort in descending order.",
)
def main(folders: tuple[Path, ...], of_run: Path | None, trust: bool, sort: str) -> None:
    """List the runs in FOLDERS (default: runs/) with their environment, progress and returns.

    The state is `running`, `finished`, `stopped`, `not begun` or `damaged`. The best return is that
    of the best evaluation since the first update and the last override. The last return is the mean
    of the last 3 of these evaluations.
    """
    if of_run is None and trust:
        raise click.UsageError("--trust requires --command")
    if of_run is not None and folders:
        raise click.UsageError("--command prints the command of a single run: omit FOLDERS")
    if of_run is not None:
        _print_command(open_run(of_run, None, {}, trust=trust))
        return
    found = [summary for folder in folders or (Path("runs"),) for summary in runs_below(folder)]
    if not found:
        echo(f"no runs in {', '.join(map(str, folders)) or 'runs'}", err=True)
        return
    if sort == "best":
        found.sort(key=lambda run: -run.best if run.best is not None else float("inf"))
    elif sort == "steps":
        found.sort(key=lambda run: -run.steps)
    rows = [["run", "environment", "agent", "seed", "steps", "of", "best", "last", "state"]]
    for run in found:
        returns = ["" if v is None else format_return(v) for v in (run.best, run.last)]
        counts = [str(run.seed), f"{run.steps:,}", f"{run.of_steps:,}"]
        names = (sanitize(name, lines=False) for name in (str(run.path), run.env, run.agent))
        rows.append([*names, *counts, *returns, run.state])
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
    from_python = [n for n, v in settings.items() if str(v).startswith(FACTORY)]
    if from_python:
        raise RunError(
            f"{run.path} was trained from Python with a factory for {', '.join(from_python)}, "
            "which the command line cannot pass"
        )
    defaults = new_run_defaults(run.agent)
    changed = {name: v for name, v in settings.items() if v != defaults[name]}
    echo(command("train.py", run.agent, "--preset", "defaults", *flag_words(changed)))
    if steps := run.overridden_at():
        echo(
            f"{run.path} had different settings before step {', '.join(map(str, steps))}: the "
            "command uses the latest settings from the start",
            err=True,
        )


if __name__ == "__main__":
    main()
