"""The plotted lines: a statistic over the runs of each group, with intervals."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eagerly.curves.estimates import STATISTICS, Estimate, over_runs
from eagerly.curves.groups import RunGroup
from eagerly.storage.files import RunFiles


@dataclass(frozen=True)
class Line:
    """A line of a figure.

    Attributes:
        group: The runs.
        places: `[M]`, horizontal positions: environment steps, or seconds.
        estimate: Statistic over the runs at each position, with its 95 % interval.
    """

    group: RunGroup
    places: np.ndarray
    estimate: Estimate


def lines_of(
    groups: Sequence[RunGroup], axis: str, statistic: str, most: int | None = None
) -> list[Line]:
    """Estimates the line of each group.

    Args:
        groups: The groups.
        axis: "steps" or "time".
        statistic: "iqm" or "mean", over runs.
        most: Largest number of points per line; more are thinned evenly. None keeps all.

    Raises:
        ValueError: If the runs of a group share no step or time, or no times were recorded.
    """
    lines = []
    for group in groups:
        places, values = group.over_seconds() if axis == "time" else group.over_steps()
        if most is not None and len(places) > most:  # before the bootstrap, which is slow
            kept = np.linspace(0, len(places) - 1, most).astype(int)
            places, values = places[kept], values[:, kept]
        lines.append(Line(group, places, over_runs(values, STATISTICS[statistic])))
    return lines


def write_lines(lines: Sequence[Line], axis: str, path: Path) -> None:
    """Writes the lines as a CSV table with one row per point. A single run has no interval.

    Args:
        lines: The lines.
        axis: As in `lines_of`; names the column of the positions.
        path: The file. Its folder is created if needed.
    """
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\n")
    place = "seconds" if axis == "time" else "steps"
    table.writerow(["label", "environment", place, "value", "low", "high", "seeds"])
    for line in lines:
        group, found = line.group, line.estimate
        columns = (line.places, found.value, found.low, found.high)
        for row in zip(*(column.tolist() for column in columns), strict=True):
            numbers = ["" if number != number else number for number in row]
            table.writerow([group.label, group.env, *numbers, len(group.curves)])
    write_file(path, text.getvalue().encode())


def write_file(path: Path, content: bytes) -> None:
    """Writes a file and creates its folder if needed.

    A link or pipe is replaced, so that no other file is written, except in /dev, as /dev/stdout.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.absolute().is_relative_to("/dev"):
        path.write_bytes(content)
    else:
        RunFiles(path.parent).write(path.name, [content])
