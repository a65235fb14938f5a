"""What a run has reached, read from its directory."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eagerly.errors import RunError
from eagerly.storage.append_log import AppendLog
from eagerly.storage.files import RunFiles

_LARGEST = 2**26  # bytes: of a million evaluations
_LONGEST = 2**20  # bytes: of their header
SUCCESS = "success_rate"  # a column of what says in `info` whether it succeeded
AT_LIMIT = "episodes_at_limit"  # ended by --evaluation-steps-limit, not by the environment
LAST = 3  # evaluations whose mean is the score of a run


@dataclass(frozen=True)
class Results:
    """The evaluations of a run, in order.

    Attributes:
        steps: `[M]`, environment steps at each evaluation.
        return_mean: `[M]`, mean return of each.
        trained: `[M]` bool, whether any update had been made by then.
        success_rate: `[M]`, share of episodes that succeeded, NaN where that was not said.
    """

    steps: np.ndarray
    return_mean: np.ndarray
    trained: np.ndarray
    success_rate: np.ndarray

    @property
    def best(self) -> int | None:
        """The index of the best evaluation since the first update; None without one."""
        if not self.trained.any():
            return None
        return int(np.argmax(np.where(self.trained, self.return_mean, -np.inf)))

    def __str__(self) -> str:
        if not self.steps.size:
            return "no evaluation yet"
        last = self.return_mean[-LAST:]
        what = f"mean of the last {len(last)} evaluations" if len(last) > 1 else "one evaluation"
        what += f" {format_return(last.mean())}; "
        if (best := self.best) is None:
            return what + "none since the first update"
        return what + f"best {format_return(self.return_mean[best])} at step {self.steps[best]}"


class EvaluationTable(AppendLog):
    """A CSV file with a row per evaluation.

    Args:
        path: The file; it is made with the first row.

    Attributes:
        last_step: The step of the last row, as `last_step_of` reads it.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._columns = self._header()
        self.last_step = last_step_of(path)

    def _header(self) -> list[str]:
        """Reads the columns of a table that is there; none of one that is damaged."""
        if self.is_empty:
            return []
        with self._files.open(self._name) as file:
            line = file.readline(_LONGEST).decode("utf-8", "replace")
        columns = next(csv.reader([line]), [])
        return columns if columns[:1] == ["steps"] else []

    def add(self, row: Mapping[str, float]) -> None:
        """Appends a row; where there is no space it waits for the next one, or for `flush`.

        Whether there is a rate of success is decided by the first row: a later one leaves it out,
        or empty.

        Raises:
            RunError: If it has other columns than the rows before it.
        """
        if self._columns:
            optional = {name for name in self._columns if name.endswith(SUCCESS)}
            row = {n: v for n, v in row.items() if n in optional or not n.endswith(SUCCESS)}
            known = (name for name in self._columns if name in row or name in optional)
            row = {name: row.get(name, math.nan) for name in known} | row
        columns = list(row)
        self._columns = self._columns or columns
        if columns != self._columns:
            raise RunError(
                f"all evaluations of a run must have the columns {', '.join(self._columns)}; got "
                f"{', '.join(columns)}: evaluate the same policies each time"
            )
        text = io.StringIO(newline="")
        table = csv.DictWriter(text, columns)
        if self.is_empty:
            table.writeheader()
        table.writerow(row)
        self.append(text.getvalue().encode())
        self.last_step = int(row["steps"])


def read_results(path: Path, *, of_run: bool = True) -> Results:
    """Reads `evaluations.csv`; a run without one has no evaluation yet.

    A last row without its newline was torn when the run died: that evaluation was not made.

    Args:
        path: The table.
        of_run: Whether a run wrote it; other tables may lack the last newline, and values.

    Raises:
        RunError: If it is not what was written there, a link or a pipe among others.
    """
    files = RunFiles(path.parent)
    try:
        if files.size(path.name) > _LARGEST:
            raise ValueError(f"it has {files.size(path.name)} bytes")
        with files.open(path.name) as file:
            content = file.read()
        if of_run:
            content = content[: content.rfind(b"\n") + 1]
        rows = list(csv.DictReader(io.StringIO(content.decode(), newline="")))
        # Under None are the values that are too many; None is each one that is missing.
        if of_run and any(None in (*row, *row.values()) for row in rows):
            raise ValueError("a row has more values than the header, or fewer")
        found = Results(
            np.array([int(row["steps"]) for row in rows], np.int64),
            np.array([float(row["return_mean"]) for row in rows]),
            # Tables that are not of a run may have no such column.
            np.array([float(row.get("updates", 1)) > 0 for row in rows], bool),
            np.array([float(row.get(SUCCESS) or "nan") for row in rows]),
        )
        if not (np.diff(found.steps) > 0).all() or not np.isfinite(found.return_mean).all():
            raise ValueError("steps must increase and returns must be finite")
        return found
    except FileNotFoundError:
        return Results(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, bool), np.zeros(0))
    except (OSError, ValueError, KeyError, TypeError, OverflowError, csv.Error) as error:
        raise RunError(f"{path} is damaged, its figures cannot be read: {error!r}") from error


def last_step_of(path: Path) -> int | None:
    """Returns the step of the last row of `evaluations.csv`; None without one, or if damaged."""
    try:
        steps = read_results(path).steps
    except RunError:
        return None
    return int(steps[-1]) if steps.size else None


def format_return(value: float) -> str:
    """Writes a return as it is shown: large ones with a decimal, small ones with four digits."""
    return f"{value:.1f}" if 100 <= abs(value) < 1e12 else f"{value:.4g}"
