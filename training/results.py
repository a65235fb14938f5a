"""What a run has reached, read from its directory."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eagerly.training.evaluation import written


@dataclass(frozen=True)
class Results:
    """The evaluations of a run, in order.

    Attributes:
        steps: `[M]`, environment steps at each evaluation.
        return_mean: `[M]`, mean return of each.
    """

    steps: np.ndarray
    return_mean: np.ndarray

    def __str__(self) -> str:
        if not self.steps.size:
            return "no evaluation yet"
        last = self.return_mean[-3:]
        best = int(self.return_mean.argmax())
        what = f"mean of the last {len(last)} evaluations" if len(last) > 1 else "one evaluation"
        return (
            f"{what} {written(last.mean())}; "
            f"best {written(self.return_mean[best])} at step {self.steps[best]}"
        )


def append_row(path: Path, row: Mapping[str, float]) -> None:
    """Appends an evaluation to the table, with a header where it is the first."""
    with path.open("a", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(row))
        if not file.tell():
            table.writeheader()
        table.writerow(row)


def read_results(path: Path) -> Results:
    """Reads `evaluations.csv`; a run without one has no evaluation yet."""
    if not path.exists():
        return Results(np.zeros(0, np.int64), np.zeros(0))
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return Results(
        np.array([int(row["steps"]) for row in rows], np.int64),
        np.array([float(row["return_mean"]) for row in rows]),
    )
