"""Options shared by commands that show learning curves: `plot` and `report`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import reduce, wraps
from pathlib import Path
from typing import Any

import click

from eagerly.scripts.output import TRUST_HELP

_OPTIONS = (
    click.argument("paths", nargs=-1, type=click.Path(path_type=Path)),
    click.option(
        "--x",
        type=click.Choice(["steps", "time"]),
        default="steps",
        help="Horizontal axis: environment steps, or wall time excluding interruptions.",
    ),
    click.option(
        "--env",
        multiple=True,
        metavar="ENV",
        help="Environment to show; can be repeated. By default, all are shown.",
    ),
    click.option(
        "--filter",
        multiple=True,
        metavar="SETTING=VALUE",
        help="Show only runs with this value of a setting, such as tau=0.005; can be repeated. "
        "Several values of the same setting are alternatives.",
    ),
    click.option(
        "--metric",
        default="return",
        metavar="METRIC",
        help="Mean return (return) or success rate (success) of each evaluation, or a scalar in "
        "TensorBoard, such as losses/critic.",
    ),
    click.option(
        "--statistic",
        type=click.Choice(["iqm", "mean"]),
        default="iqm",
        help="Statistic over runs: interquartile mean (of the middle half), or mean.",
    ),
    click.option(
        "--until",
        type=click.IntRange(min=1),
        metavar="STEPS",
        help="Last step to include, for comparing runs of different lengths.",
    ),
    click.option(
        "--score-last",
        type=click.IntRange(min=1),
        default=3,
        metavar="N",
        help="Number of final evaluations whose mean is the score of a run. Published results "
        "often use 10.",
    ),
    click.option(
        "--baseline",
        metavar="LABEL",
        help="Compare all other runs with those of this label, in a second table (plot: and a "
        "second figure).",
    ),
    click.option(
        "--rename",
        nargs=2,
        multiple=True,
        metavar="LABEL NAME",
        help="Replace a label by a new name; can be repeated.",
    ),
    click.option("--title", default="", show_default=False, help="Title of the figure or page."),
    click.option("--trust", is_flag=True, help=TRUST_HELP),
)


def curve_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds options to select, group, name and compare runs, which the command gets as `Selection`.

    The option --title is passed on unchanged.
    """

    @wraps(command)
    def with_selection(filter: Sequence[str], rename: Any, **values: Any) -> Any:
        from eagerly.curves.selection import Selection  # slow to import

        names = {each.name for each in fields(Selection)}
        selected = {name: values.pop(name) for name in names & values.keys()}
        by_setting = _values_by_setting(filter)
        return command(Selection(filter=by_setting, rename=dict(rename), **selected), **values)

    return reduce(lambda made, option: option(made), reversed(_OPTIONS), with_selection)


def _values_by_setting(words: Sequence[str]) -> dict[str, list[str]]:
    """Converts words such as `tau=0.005` to alternative values by setting."""
    found: dict[str, list[str]] = {}
    for word in words:
        name, is_pair, value = word.partition("=")
        if not is_pair:
            raise click.BadParameter(
                f"--filter must be SETTING=VALUE, such as tau=0.005; got {word}"
            )
        found.setdefault(name.strip().replace("-", "_"), []).append(value.strip())
    return found
