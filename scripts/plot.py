"""Draws and compares runs: `plot.py runs/`, or `plot.py benchmarks/learning/td3-*.csv ...`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np

from eagerly.scripts.flags import Command
from eagerly.training.errors import RunError

if TYPE_CHECKING:
    from eagerly.curves.tables import Group

_PATH = click.Path(path_type=Path, exists=True)


@click.command(cls=Command, context_settings={"max_content_width": 100})
@click.argument("paths", nargs=-1, required=True, type=_PATH)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("curves.png"),
    show_default=True,
    help="The picture; its ending, .png or .svg, says of which kind.",
)
@click.option(
    "--x",
    "axis",
    type=click.Choice(["steps", "time"]),
    default="steps",
    show_default=True,
    help="Environment steps, or wall time without the time in which nothing ran.",
)
@click.option(
    "--statistic",
    type=click.Choice(["iqm", "mean"]),
    default="iqm",
    show_default=True,
    help="Of the runs: the mean of their middle half, or of all.",
)
@click.option(
    "--theme",
    type=click.Choice(["light", "dark", "both"]),
    default="light",
    show_default=True,
    help="For light or dark pages; both: a second picture whose name ends in -dark.",
)
@click.option("--baseline", help="Compare all others with the runs of this label.")
@click.option("--title", default="", help="Written above the picture.")
def main(
    paths: tuple[Path, ...],
    output: Path,
    axis: str,
    statistic: str,
    theme: str,
    baseline: str | None,
    title: str,
) -> None:
    """Draws the learning curves of PATHS, and prints what was reached.

    PATHS are run directories, tables named label-Environment-v0-seed.csv, or folders of either.
    Runs that differ in their seed alone become one line with a band: the 95 % bootstrap interval.
    """
    from eagerly.curves.figures import learning_curves
    from eagerly.curves.tables import read_groups

    if output.suffix not in (".png", ".svg"):
        raise click.BadParameter(f"--output must end in .png or .svg, got {output}")
    try:
        groups = read_groups(paths)
        if not groups:
            raise click.ClickException("there is no evaluation in these runs yet")
        labels = {group.label for group in groups}
        if baseline and baseline not in labels:
            raise click.BadParameter(f"--baseline must be one of {sorted(labels)}, got {baseline}")
        for name in ("light", "dark") if theme == "both" else (theme,):
            second = theme == "both" and name == "dark"
            picture = output.with_stem(f"{output.stem}-dark") if second else output
            figure = learning_curves(
                groups, axis=axis, statistic=statistic, theme=name, title=title
            )
            picture.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(picture, dpi=150)
            click.echo(f"picture  {picture}", err=True)
    except (RunError, ValueError, OSError) as error:
        raise click.ClickException(str(error)) from error
    _print(groups, baseline)


def _print(groups: Sequence[Group], baseline: str | None) -> None:
    """Prints a Markdown table of scores, and one of differences from the baseline."""
    from eagerly.curves.statistics import difference, over_runs, probability_of_improvement

    click.echo("| environment | runs of | seeds | steps | mean ± std | IQM [95 %] |")
    click.echo("|---|---|---|---|---|---|")
    for group in groups:
        scores = group.scores
        deviation = f" ± {np.std(scores, ddof=1):.4g}" if len(scores) > 1 else ""
        seeds = ", ".join(str(curve.seed) for curve in group.curves)
        steps = min(int(curve.steps[-1]) for curve in group.curves)
        click.echo(
            f"| {group.env} | {group.label} | {seeds} | {steps:,} | "
            f"{scores.mean():.4g}{deviation} | {over_runs(scores)} |"
        )
    if not baseline:
        return
    click.echo(f"\nBeside {baseline}:\n")
    click.echo("| environment | runs of | difference of IQM [95 %] | probability of improvement |")
    click.echo("|---|---|---|---|")
    of = {group.env: group.scores for group in groups if group.label == baseline}
    for group in groups:
        if group.label == baseline or group.env not in of:
            continue
        other = of[group.env]
        click.echo(
            f"| {group.env} | {group.label} | {difference(group.scores, other)} | "
            f"{probability_of_improvement([group.scores], [other])} |"
        )


if __name__ == "__main__":
    main()
