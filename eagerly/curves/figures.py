"""Draws learning curves and comparisons, for light and dark pages."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from eagerly.curves.comparison import Comparison
from eagerly.curves.estimates import TITLES, Estimate
from eagerly.curves.groups import RunGroup
from eagerly.curves.lines import Line, write_file

# Okabe and Ito's palette for color-blind readers, without black, which vanishes on dark pages.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#7f7f7f")
_STYLES = ("-", "--", "-.", ":")
INK = {"light": ("#222222", "#ffffff"), "dark": ("#dddddd", "#0d1117")}
_FEW = 10  # curves of fewer evaluations get markers, since one point draws no line
_WIDEST = 38  # characters of a line above a panel
_SHORT = 8  # characters of a metric that fits on one line of the y label
FORMATS = (".png", ".svg", ".pdf")  # endings of figures


class NotebookFigure(Figure):
    """A figure that a notebook shows, also without `%matplotlib inline`."""

    def _repr_png_(self) -> bytes:
        content = BytesIO()
        self.savefig(content, format="png")
        return content.getvalue()


def save(figure: Figure, path: Path) -> None:
    """Writes a figure as a file of one of the `FORMATS` and creates its folder if needed."""
    content = BytesIO()
    with mpl.rc_context({"pdf.fonttype": 42}):  # many publishers reject Type 3 fonts, the default
        figure.savefig(content, dpi=150, format=path.suffix[1:])
    write_file(path, content.getvalue())


def learning_curves(
    lines: Sequence[Line],
    *,
    axis: str = "steps",
    metric: str = "return",
    statistic: str = "iqm",
    theme: str = "light",
    title: str = "",
) -> Figure:
    """Draws one panel per environment, with a line and a 95 % band or error bar per label.

    Args:
        lines: The lines to draw, from `lines_of`.
        axis: "steps" or "time", as passed to `lines_of`.
        metric: The metric of the lines, for the axis label.
        statistic: "iqm" or "mean", as passed to `lines_of`.
        theme: "light" or "dark".
        title: Title of the figure.
    """
    envs = list(dict.fromkeys(line.group.env for line in lines))
    looks, unit = looks_of(lines), unit_of(lines, axis)
    columns = min(3, len(envs))
    rows = math.ceil(len(envs) / columns)
    with mpl.rc_context(rc=style_of(theme)):
        size = (1.6 + 3.9 * columns, 0.9 + 2.9 * rows)
        figure = NotebookFigure(figsize=size, layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False).ravel()
        for panel in panels[len(envs) :]:
            panel.set_visible(False)
        drawn = {}
        for env, panel in zip(envs, panels, strict=False):
            for line in lines:
                if line.group.env == env:
                    label = line.group.label
                    drawn[label] = draw_line(panel, line, unit, looks[label])
            panel.set(title=textwrap.fill(env, _WIDEST), xlabel=unit.name)
        for panel in panels[::columns]:
            words = metric, f"({TITLES[statistic]} over runs)"
            panel.set_ylabel(("\n" if len(metric) > _SHORT else " ").join(words))
        if title:
            figure.suptitle(title)
        _legend(figure, drawn, [line.group for line in lines])
    return figure


def _legend(figure: Figure, drawn: Mapping[str, Any], groups: Sequence[RunGroup]) -> None:
    """Draws the legend with run counts below all panels, where long labels fit."""
    texts = []
    for label in drawn:
        counts = sorted({len(group.curves) for group in groups if group.label == label})
        runs = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])
        text = f"{label} ({runs} run{'' if runs == '1' else 's'})"
        texts.append(textwrap.fill(text, int(14 * figure.get_figwidth())))
    longest = max(len(line) for text in texts for line in text.splitlines())
    columns = max(1, min(len(texts), int(12 * figure.get_figwidth() / (longest + 8))))
    figure.legend(
        list(drawn.values()),
        texts,
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize="small",
        handlelength=3,  # shows more than one dash
    )
    # Enlarge the figure, so that the legend does not shrink the panels.
    rows = sum(text.count("\n") + 1 for text in texts[::columns])
    figure.set_figheight(figure.get_figheight() + 0.17 * rows)


@dataclass(frozen=True)
class Unit:
    """The unit of the horizontal axis. Values are divided by `size`."""

    name: str
    size: float


def unit_of(lines: Sequence[Line], axis: str) -> Unit:
    """Returns the unit of the horizontal axis.

    Args:
        lines: All lines.
        axis: "steps" or "time", as passed to `lines_of`.
    """
    if axis == "steps":
        return Unit("environment steps (thousands)", 1000)
    longest = max(float(line.places[-1]) for line in lines)
    units = (Unit("hours", 3600), Unit("minutes", 60), Unit("seconds", 1))
    return next((unit for unit in units if longest >= 3 * unit.size), units[-1])


def comparison(comparisons: Sequence[Comparison], baseline: str, *, theme: str = "light") -> Figure:
    """Draws normalized scores and the probability of improvement, with their 95 % intervals.

    Args:
        comparisons: Comparisons with the baseline.
        baseline: Label of the baseline.
        theme: "light" or "dark".
    """
    several = len({found.label for found in comparisons}) > 1
    rows = [f"{c.where}, {c.label}" if several else c.where for c in comparisons]
    every: dict[str, tuple[float, list[Estimate | None]]] = {
        f"normalized IQM ({baseline} = 1)": (1.0, [c.normalized for c in comparisons]),
        f"probability of improvement over {baseline}": (0.5, [c.improvement for c in comparisons]),
    }
    # Omit a panel without any estimate: normalized scores may be unavailable.
    panels = {name: shown for name, shown in every.items() if any(shown[1])}
    with mpl.rc_context(rc=style_of(theme)):
        figure = Figure(figsize=(8.6, 1.1 + 0.32 * len(rows)), layout="constrained")
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False).ravel()
        for panel, (name, (even, estimates)) in zip(axes, panels.items(), strict=True):
            panel.axvline(even, color=COLORS[-1], linewidth=1, linestyle=":")
            for place, found in enumerate(estimates):
                if found is not None:
                    panel.plot([found.low, found.high], [place, place], color=COLORS[0])
                    panel.plot(found.value, place, "o", color=COLORS[0])
            panel.set(xlabel=name, yticks=range(len(rows)), ylim=(len(rows) - 0.5, -0.5))
            panel.grid(visible=False, axis="y")
        axes[0].set_yticklabels(rows)
        axes[-1].set_xlim(-0.05, 1.05)
    return figure


def draw_line(panel: Any, line: Line, unit: Unit, look: dict[str, str]) -> Any:
    """Draws a line with its band. Returns the object for the legend."""
    places, found = line.places / unit.size, line.estimate
    marker = "o" if line.places.size < _FEW else None
    (drawn,) = panel.plot(places, found.value, linewidth=1.8, marker=marker, **look)
    if len(line.group.curves) > 1 and places.size > 1:
        panel.fill_between(places, found.low, found.high, alpha=0.2, color=look["color"], lw=0)
    elif len(line.group.curves) > 1:  # a band over one point has no width
        panel.vlines(places, found.low, found.high, color=look["color"], linewidth=1.8)
    return drawn


def looks_of(lines: Sequence[Line]) -> dict[str, dict[str, str]]:
    """Assigns each label a color and a line style, the same in every panel.

    Lines of one panel have different colors, as long as there are enough colors.
    """
    envs: dict[str, set[str]] = {}
    for line in lines:
        envs.setdefault(line.group.label, set()).add(line.group.env)
    every = list(zip(COLORS * len(_STYLES), _STYLES * len(COLORS), strict=True))
    left: list[tuple[str, str]] = []
    looks: dict[str, dict[str, str]] = {}
    for label, panels in envs.items():
        left = left or every.copy()
        taken = {looks[other]["color"] for other in looks if envs[other] & panels}
        color, style = next((look for look in left if look[0] not in taken), left[0])
        left.remove((color, style))
        looks[label] = {"color": color, "linestyle": style}
    return looks


def style_of(theme: str) -> Any:
    """Returns the matplotlib settings of a theme, "light" or "dark"."""
    ink, paper = INK[theme]
    inked = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    filled = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")
    colors = dict.fromkeys((*inked, "axes.titlecolor"), ink) | dict.fromkeys(filled, paper)
    return colors | {
        "text.parse_math": False,  # a dollar sign in a name does not start a formula
        "axes.grid": True,
        "grid.alpha": 0.25,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
