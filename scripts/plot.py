"""Plots and compares runs: `eagerly plot runs/`, or `eagerly plot tables/td3-*.csv ...`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np

from eagerly.errors import RunError
from eagerly.sanitizing import sanitize
from eagerly.scripts.commands import Command
from eagerly.scripts.curve_options import curve_options
from eagerly.scripts.output import Failure, echo

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from eagerly.curves.comparison import Comparison
    from eagerly.curves.groups import RunGroup
    from eagerly.curves.selection import Selection


@click.command(cls=Command)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("curves.png"),
    help="Figure to write, .png, .svg or .pdf.",
)
@click.option(
    "--theme",
    type=click.Choice(["light", "dark", "both"]),
    default="light",
    help="Colors for light or dark pages; both: a second image whose name ends in -dark.",
)
@click.option(
    "--csv",
    "table",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write the plotted curves as a CSV table.",
)
@curve_options
def main(selection: Selection, output: Path, theme: str, table: Path | None, title: str) -> None:
    """Plot the learning curves of the runs in PATHS and print a table of their scores.

    PATHS (default: runs/) are run directories, tables of evaluations named
    label-Environment-v0-seed.csv, or folders that contain them. Runs that differ only in their
    seed, and in settings that do not change the algorithm, form one curve with a 95 % bootstrap
    interval.
    """
    with chdir("/"):  # matplotlib reads settings from the working directory on import
        from eagerly.curves.figures import FORMATS, comparison, learning_curves, save
    from eagerly.curves.lines import lines_of, write_lines

    def show(figure: Figure, path: Path) -> None:
        save(figure, path)
        _note(f"figure    {path}")

    if output.suffix.lower() not in FORMATS:
        raise click.BadParameter(f"--output must end in {', '.join(FORMATS)}; got {output}")
    try:
        groups = selection.groups(_skip)
        comparisons = selection.comparisons(groups, _note)
        x, statistic = selection.x, selection.statistic
        lines = lines_of(groups, x, statistic)
        for look in ("light", "dark") if theme == "both" else (theme,):
            stem = f"{output.stem}-dark" if theme == "both" and look == "dark" else output.stem
            curves = learning_curves(
                lines,
                axis=x,
                metric=selection.metric,
                statistic=statistic,
                theme=look,
                title=title,
            )
            show(curves, output.with_stem(stem))
            if comparisons:
                beside = comparison(comparisons, selection.reference, theme=look)
                show(beside, output.with_stem(f"{stem}-beside"))
        if table:
            write_lines(lines, x, table)
            _note(f"table     {table}")
        _print_scores(groups)
        if comparisons:
            _print_comparisons(comparisons, selection.reference)
    except (RunError, ValueError, OSError) as error:
        raise Failure(error) from error
    for line in selection.notes(groups):
        _note(line)


def print_table(paths: Sequence[Path], *, trust: bool = False) -> None:
    """Prints the score table of `plot` without drawing a figure.

    Args:
        paths: Run directories, tables, or folders that contain them.
        trust: As in `read_groups`.

    Raises:
        RunError: As in `read_groups`.
    """
    from eagerly.curves.notes import notes_on
    from eagerly.curves.tables import read_groups

    groups = read_groups(paths, skip=_skip, trust=trust)
    if not groups:
        _note("these runs have no evaluations yet")
        return
    _print_scores(groups)
    for line in notes_on(groups, "scored"):
        _note(line)


def _skip(path: Path, reason: object) -> None:
    _note(f"{path} is skipped: {reason}")


def _note(line: str) -> None:
    echo(sanitize(line, lines=False), err=True)


def _print_scores(groups: Sequence[RunGroup]) -> None:
    """Prints the scores of all groups as a Markdown table."""
    from eagerly.curves.estimates import format_number, over_runs

    echo("| environment | label | seeds | steps | mean ± std | IQM [95 %] |")
    echo("|---|---|---|---|---|---|")
    for group in groups:
        scores = group.scores
        deviation = f" ± {format_number(np.std(scores, ddof=1))}" if len(scores) > 1 else ""
        seeds = ", ".join(str(curve.seed) for curve in group.curves)
        echo(
            f"| {group.env} | {_escaped(group.label)} | {seeds} | {group.last:,} | "
            f"{format_number(scores.mean())}{deviation} | {over_runs(scores)} |"
        )


def _print_comparisons(comparisons: Sequence[Comparison], baseline: str) -> None:
    """Prints the comparisons with the baseline as a Markdown table."""
    echo(f"\nComparison with {baseline} (normalized: random policy 0, {baseline} 1):\n")
    echo(
        "| environment | label | steps | difference of IQM [95 %] | normalized IQM | "
        "probability of improvement |"
    )
    echo("|---|---|---|---|---|---|")
    for found in comparisons:
        steps = ", ".join(f"{count:,}" for count in dict.fromkeys(found.steps))
        estimates = found.difference, found.normalized, found.improvement
        label = _escaped(found.label)
        cells = (found.where, label, steps, *("" if e is None else str(e) for e in estimates))
        echo(f"| {' | '.join(cells)} |")
    if not all(found.normalized for found in comparisons):
        echo(
            f"\nNormalized scores are omitted if a run of {baseline} is no better than a random "
            "policy, or the score of a random policy is unknown."
        )


def _escaped(label: str) -> str:
    return label.replace("|", "\\|")


if __name__ == "__main__":
    main()
