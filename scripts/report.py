"""Writes an HTML report of runs: `report.py runs/ -o report.html`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from eagerly.errors import RunError
from eagerly.scripts.commands import Command
from eagerly.scripts.curve_options import curve_options
from eagerly.scripts.output import Failure, log_to_terminal, say

if TYPE_CHECKING:
    from eagerly.curves.selection import Selection


@click.command(cls=Command)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("report.html"),
    help="Page to write, .html.",
)
@curve_options
def main(selection: Selection, output: Path, title: str) -> None:
    """Write a self-contained HTML page about the runs in PATHS.

    The page contains learning curves, scores, settings that differ, videos, overrides and versions.
    PATHS (default: runs/) are run directories, tables of evaluations named
    label-Environment-v0-seed.csv, or folders that contain them. Runs are grouped as by plot. Runs
    that cannot be shown are listed with the reason.
    """
    from eagerly.reports.reporting import write_report

    if output.suffix.lower() != ".html":
        raise click.BadParameter(f"--output must end in .html; got {output}")
    log_to_terminal()
    try:
        page = write_report(selection, output, title or "Training report")
    except (RunError, ValueError, OSError) as error:
        raise Failure(error) from error
    say(f"report    {output} ({len(page.encode()) / 1024:,.0f} KiB)")


if __name__ == "__main__":
    main()
