"""The public function that plots learning curves."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import chdir
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eagerly.curves.lines import lines_of, write_lines
from eagerly.curves.selection import Selection, check_choice

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_log = logging.getLogger(__name__)


def plot(
    *paths: str | Path,
    output: str | Path | None = None,
    x: str = "steps",
    env: str | Sequence[str] = (),
    filter: Mapping[str, Any] | None = None,
    metric: str = "return",
    statistic: str = "iqm",
    theme: str = "light",
    until: int | None = None,
    rename: Mapping[str, str] | None = None,
    csv: str | Path | None = None,
    title: str = "",
    trust: bool = False,
) -> Figure:
    """Plots the learning curves of runs.

    Runs that differ only in their seed, and in settings that do not change the algorithm, form one
    line with a 95 % interval. Skipped runs, such as damaged ones, are logged as warnings.

    Args:
        *paths: Run directories, tables of evaluations named label-Environment-v0-seed.csv, or
            folders that contain them. Without paths, all runs in the folder `runs` are plotted.
        output: A .png, .svg or .pdf file to write; None writes no file.
        x: "steps", or "time" for wall time.
        env: Environments to plot; empty for all.
        filter: Values of settings, such as `{"tau": 0.005}`. A list contains alternative values,
            unless it is itself the value, such as `{"hidden_sizes": [256, 256]}`. Other runs are
            omitted.
        metric: "return", "success" for the success rate, or the tag of a scalar in the runs'
            TensorBoard event files, such as "losses/critic".
        statistic: "iqm", the interquartile mean over seeds, or "mean".
        theme: "light" or "dark".
        until: Environment steps after which evaluations are omitted, at least 1.
        rename: Maps current labels to new ones.
        csv: A file to write the curves to, with the columns label, environment, steps (or seconds),
            value, low, high and seeds; None writes no file.
        title: Title of the figure.
        trust: Whether to import custom agents named in run directories, even if another user
            created these directories.

    Returns:
        The figure.

    Raises:
        RunError: If there is nothing to plot, an environment, setting or metric does not occur in
            the runs, or a file cannot be read.
        ValueError: If an argument is not one of its choices, or `until` is less than 1.
    """
    with chdir("/"):  # matplotlib reads settings from the working directory on import
        from eagerly.curves.figures import FORMATS, learning_curves, save
    check_choice("theme", theme, ("light", "dark"))
    check_choice("output", Path(output or "x.png").suffix.lower(), FORMATS)
    selected = Selection(paths, x, env, filter, metric, statistic, until, rename, trust=trust)
    lines = lines_of(selected.groups(partial(_log.warning, "%s is skipped: %s")), x, statistic)
    figure = learning_curves(
        lines, axis=x, metric=metric, statistic=statistic, theme=theme, title=title
    )
    if output is not None:
        save(figure, Path(output))
    if csv is not None:
        write_lines(lines, x, Path(csv))
    return figure
