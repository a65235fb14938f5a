"""Plots and compares runs: `plot.py runs/`, or `plot.py benchmarks/learning/td3-*.csv ...`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np

from eagerly.errors import RunError
from eagerly.scripts.commands import Command
from eagerly.scripts.output import TRUST_HELP, Failure, echo, sanitize

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from eagerly.curves.comparison import Comparison
    from eagerly.curves.tables import RunGroup

_ENOUGH = 5  # runs needed for nearly nominal coverage of the intervals
_NOTHING = "there is no evaluation in these runs yet"


@click.command(cls=Command)
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("curves.png"),
    help="The picture; its ending, .png or .svg, says of which kind.",
)
@click.option(
    "--x",
    "axis",
    type=click.Choice(["steps", "time"]),
    default="steps",
    help="Environment steps, or wall time without the time in which nothing ran.",
)
@click.option(
    "--metric",
    type=click.Choice(["return", "success"]),
    default="return",
    help="Mean return of an evaluation, or the share of its episodes that succeeded.",
)
@click.option(
    "--statistic",
    type=click.Choice(["iqm", "mean"]),
    default="iqm",
    help="Of the runs: the mean of their middle half, or of all.",
)
@click.option(
    "--theme",
    type=click.Choice(["light", "dark", "both"]),
    default="light",
    help="For light or dark pages; both: a second picture whose name ends in -dark.",
)
@click.option(
    "--until",
    type=click.IntRange(min=1),
    metavar="STEPS",
    help="Leave out what came later: compares runs of different lengths.",
)
@click.option(
    "--baseline",
    metavar="LABEL",
    help="Compare all others with the runs of this label, in a second picture and table.",
)
@click.option(
    "--rename",
    nargs=2,
    multiple=True,
    metavar="LABEL NAME",
    help="Call runs of a label something else; may be given several times.",
)
@click.option("--title", default="", show_default=False, help="Written above the picture.")
@click.option("--trust", is_flag=True, help=TRUST_HELP)
def main(
    paths: tuple[Path, ...],
    output: Path,
    axis: str,
    metric: str,
    statistic: str,
    theme: str,
    until: int | None,
    baseline: str | None,
    rename: tuple[tuple[str, str], ...],
    title: str,
    trust: bool,
) -> None:
    """Plots the learning curves of the runs in PATHS and prints a table of their scores.

    PATHS are run directories, tables named label-Environment-v0-seed.csv, or folders of either.
    Runs that differ only in their seed become one line with a band: the 95 % bootstrap interval.
    """
    with chdir("/"):  # matplotlib reads settings from the working directory on import
        from eagerly.curves.figures import comparison, learning_curves, save
    from eagerly.curves.comparison import compare
    from eagerly.curves.tables import selected_groups

    def show(figure: Figure, path: Path) -> None:
        save(figure, path)
        _note(f"picture  {path}")

    if output.suffix not in (".png", ".svg"):
        raise click.BadParameter(f"--output must end in .png or .svg, got {output}")
    try:
        names = dict(rename)
        groups = selected_groups(
            paths,
            metric=metric,
            axis=axis,
            until=until,
            rename=names,
            say=_note,
            trust=trust,
        )
        baseline = baseline and names.get(baseline, baseline)
        labels = sorted({group.label for group in groups})
        if baseline and baseline not in labels:
            raise click.BadParameter(f"--baseline must be one of {labels}, got {baseline}")
        # Random policies have no known success rate, so success rates are not normalized.
        zeros: dict[str, float] | None = None if metric == "return" else {}
        comparisons = compare(groups, baseline, zeros) if baseline else []
        for look in ("light", "dark") if theme == "both" else (theme,):
            stem = f"{output.stem}-dark" if theme == "both" and look == "dark" else output.stem
            curves = learning_curves(
                groups, axis=axis, metric=metric, statistic=statistic, theme=look, title=title
            )
            show(curves, output.with_stem(stem))
            if baseline and comparisons:
                beside = comparison(comparisons, baseline, theme=look)
                show(beside, output.with_stem(f"{stem}-beside"))
        _print_scores(groups)
        if baseline:
            _print_comparisons(comparisons, baseline)
    except (RunError, ValueError, OSError) as error:
        raise Failure(error) from error
    _print_notes(groups, "drawn and scored" if axis == "steps" else "scored")


def print_table(paths: Sequence[Path], *, trust: bool = False) -> None:
    """Prints the score table of `plot` without drawing a figure.

    Args:
        paths: Run directories, tables, or folders of either.
        trust: As in `read_groups`.

    Raises:
        RunError: As in `read_groups`.
        ValueError: If the runs of a group have no evaluation step in common.
    """
    from eagerly.curves.tables import read_groups

    groups = read_groups(paths, say=_note, trust=trust)
    if not groups:
        _note(_NOTHING)
        return
    _print_scores(groups)
    _print_notes(groups, "scored")


def _print_notes(groups: Sequence[RunGroup], treated: str) -> None:
    """Prints caveats about the table. `treated` is "scored" or "drawn and scored"."""
    if any(2 <= len(group.curves) < _ENOUGH for group in groups):
        _note(
            f"intervals of fewer than {_ENOUGH} runs are too narrow; docs/curves.md says how much"
        )
    for group in groups:
        if line := _what_is_left_out(group, treated):
            _note(line)


def _what_is_left_out(group: RunGroup, treated: str) -> str:
    """Returns a note on evaluations ignored because some runs of the group lack them, or ""."""
    shared = group.over_steps()[0]
    about = f"{group.label}, {group.env}"
    shortest = min(int(curve.steps[-1]) for curve in group.curves)
    if any((curve.steps <= shortest).sum() > len(shared) for curve in group.curves):
        count = f"{len(shared)} steps" if len(shared) > 1 else "one step"
        return (
            f"{about}: its runs were evaluated at different steps; all are {treated} at "
            f"the {count} that they share, until step {group.last:,}"
        )
    longer = sum(int(curve.steps[-1]) > shortest for curve in group.curves)
    if not longer:
        return ""
    return (
        f"{about}: {longer} of {len(group.curves)} runs are longer than the shortest; all are "
        f"{treated} until step {group.last:,}"
    )


def _note(line: str) -> None:
    echo(sanitize(line, lines=False), err=True)


def _print_scores(groups: Sequence[RunGroup]) -> None:
    """Prints the scores of all groups as a Markdown table."""
    from eagerly.curves.estimates import format_number, over_runs

    echo("| environment | runs of | seeds | steps | mean ± std | IQM [95 %] |")
    echo("|---|---|---|---|---|---|")
    for group in groups:
        scores = group.scores
        deviation = f" ± {format_number(np.std(scores, ddof=1))}" if len(scores) > 1 else ""
        seeds = ", ".join(str(curve.seed) for curve in group.curves)
        echo(
            f"| {group.env} | {group.label} | {seeds} | {group.last:,} | "
            f"{format_number(scores.mean())}{deviation} | {over_runs(scores)} |"
        )


def _print_comparisons(comparisons: Sequence[Comparison], baseline: str) -> None:
    """Prints the comparisons with the baseline as a Markdown table."""
    echo(f"\nBeside {baseline}; normalized: a random policy has 0, {baseline} 1:\n")
    echo(
        "| environment | runs of | steps | difference of IQM [95 %] | normalized IQM | "
        "probability of improvement |"
    )
    echo("|---|---|---|---|---|---|")
    for found in comparisons:
        steps = ", ".join(f"{count:,}" for count in dict.fromkeys(found.steps))
        estimates = found.difference, found.normalized, found.improvement
        cells = (found.where, found.label, steps, *("" if e is None else str(e) for e in estimates))
        echo(f"| {' | '.join(cells)} |")
    if not all(found.normalized for found in comparisons):
        echo(
            f"\nNot normalized is what has no scale: a run of {baseline} is no better than a "
            "random policy, or what that reaches is not known."
        )


if __name__ == "__main__":
    main()
