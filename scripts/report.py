"""Writes an HTML report of runs: `report.py runs/ -o report.html`."""

from __future__ import annotations

from pathlib import Path

import click

from eagerly.errors import RunError
from eagerly.scripts.commands import Command
from eagerly.scripts.curve_options import curve_options, values_by_setting
from eagerly.scripts.output import Failure, log_to_terminal, say


@click.command(cls=Command)
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("report.html"),
    help="Page to write, .html.",
)
@curve_options
def main(
    paths: tuple[Path, ...],
    output: Path,
    axis: str,
    env: tuple[str, ...],
    filters: tuple[str, ...],
    metric: str,
    statistic: str,
    until: int | None,
    baseline: str | None,
    rename: tuple[tuple[str, str], ...],
    title: str,
    trust: bool,
) -> None:
    """Write a self-contained HTML page about the runs in PATHS.

    The page contains learning curves, scores, settings that differ, videos, overrides and versions.
    PATHS (default: runs/) are run directories, tables of evaluations named
    label-Environment-v0-seed.csv, or folders that contain them. Runs are grouped as by plot. Runs
    that cannot be shown are listed with the reason.
    """
    from eagerly.reports.reporting import report

    if output.suffix != ".html":
        raise click.BadParameter(f"--output must end in .html; got {output}")
    log_to_terminal()
    try:
        page = report(
            *paths,
            output=output,
            x=axis,
            env=env,
            filter=values_by_setting(filters),
            metric=metric,
            statistic=statistic,
            until=until,
            baseline=baseline,
            rename=dict(rename),
            title=title or "Training report",
            trust=trust,
        )
    except (RunError, ValueError, OSError) as error:
        raise Failure(error) from error
    say(f"report    {output} ({len(page.encode()) / 2**20:.1f} MiB)")


if __name__ == "__main__":
    main()
