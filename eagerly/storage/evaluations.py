"""The evaluation results of a run, written and read as CSV."""

from __future__ import annotations

import csv
import io
import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from eagerly.errors import RunError
from eagerly.storage.append_log import AppendLog
from eagerly.storage.files import RunFiles

_LARGEST = 2**26  # bytes
LONGEST_ROW = 2**20  # bytes per line
_MOST = 2**20  # evaluations
SUCCESS = "success_rate"  # for environments that report success in `info`
AT_LIMIT = "episodes_at_limit"  # number of episodes that --evaluation-steps-limit ended
LAST = 3  # evaluations whose mean is the score of a run


@dataclass(frozen=True)
class Results:
    """The evaluations of a run, in order.

    Attributes:
        steps: `[M]`, environment steps at each evaluation.
        return_mean: `[M]`, mean return of each evaluation.
        counted: `[M]` bool, whether the evaluation counts for the best return and the score: at
            least one update preceded it, and no setting was overridden later.
        success_rate: `[M]`, fraction of successful episodes, NaN if the environment does not report
            success.
        seconds: `[M]`, wall time until each evaluation, NaN in run tables, which do not contain it.
        after: Step of the last override, or -1.
    """

    steps: np.ndarray
    return_mean: np.ndarray
    counted: np.ndarray
    success_rate: np.ndarray
    seconds: np.ndarray
    after: int = -1

    @property
    def last_step(self) -> int | None:
        """The step of the last evaluation, or None."""
        return int(self.steps[-1]) if self.steps.size else None

    @property
    def best(self) -> int | None:
        """The index of the best evaluation that counts, or None."""
        if not self.counted.any():
            return None
        return int(np.argmax(np.where(self.counted, self.return_mean, -np.inf)))

    @property
    def best_return(self) -> float | None:
        """The mean return of the best evaluation that counts, or None."""
        return None if self.best is None else float(self.return_mean[self.best])

    @property
    def score(self) -> float | None:
        """The mean return of the last 3 evaluations that count, or None."""
        return score_of(self.return_mean[self.counted])

    def __str__(self) -> str:
        best, score, last = self.best, self.score, min(LAST, int(self.counted.sum()))
        if best is None or score is None:
            since = " since the first update" + " and the last override" * (self.after >= 0)
            return "no evaluation yet" + since * bool(self.steps.size)
        what = f"mean of the last {last} evaluations" if last > 1 else "one evaluation"
        found = format_return(self.return_mean[best])
        return f"{what} {format_return(score)}; best {found} at step {self.steps[best]}"


def score_of(returns: Sequence[float] | np.ndarray) -> float | None:
    """Returns the mean of the last 3 returns, or None without returns."""
    return float(np.mean(returns[-LAST:])) if len(returns) else None


class EvaluationTable(AppendLog):
    """A CSV file with one row per evaluation.

    Args:
        path: The file, created with the first row.
        after: As in `read_results`.
        points: The log with the points of evaluations. A row makes an evaluation count, so it is
            only written after these points are on disk.

    Attributes:
        count: Number of evaluations, 0 if the table is damaged.
        last_step: Step of the last evaluation; None without one, or if the table is damaged.
    """

    def __init__(self, path: Path, after: int = -1, points: AppendLog | None = None) -> None:
        super().__init__(path)
        self._points = points
        self._columns, self._after = self._header(), after
        results = _intact_results(path, after)
        self.count, self.last_step = len(results.steps), results.last_step
        self._counted = results.return_mean[results.counted].tolist()[-LAST:]

    @property
    def score(self) -> float | None:
        """The mean return of the last 3 evaluations that count, or None; see `Results`."""
        return score_of(self._counted)

    def _header(self) -> list[str]:
        """Returns the columns of an existing table, or an empty list if it is damaged."""
        if self.is_empty:
            return []
        with self._files.open(self._name) as file:
            line = file.readline(LONGEST_ROW).decode("utf-8", "replace")
        columns = next(csv.reader([line]), [])
        return columns if columns[:1] == ["steps"] else []

    def flush(self) -> None:
        """Writes all buffered rows, after the points of their evaluations.

        Raises:
            OSError: As in `AppendLog.sync`.
        """
        if self._points and self._waiting:
            self._points.sync()
        super().flush()

    def add(self, row: Mapping[str, float]) -> None:
        """Appends a row. If writing fails, it is buffered; see `AppendLog.append`.

        The first row determines the optional columns. In later rows, other optional columns are
        dropped and missing ones become NaN.

        Raises:
            RunError: If the required columns differ from those of earlier rows, or the row or table
                would be larger than `read_results` accepts.
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
        content = text.getvalue().encode()
        if (length := max(map(len, content.splitlines()))) >= LONGEST_ROW - 2:
            raise RunError(
                f"a row of {self._name} must be shorter than {LONGEST_ROW} bytes; got {length}: "
                "evaluate fewer policies"
            )
        if self.count == _MOST or self.size + len(content) > _LARGEST:
            raise RunError(
                f"{self._name} can hold at most {_MOST} evaluations and {_LARGEST} bytes: evaluate "
                "less often"
            )
        self.append(content)
        self.count, self.last_step = self.count + 1, int(row["steps"])
        if _counts(row, self._after):
            self._counted = [*self._counted, float(row["return_mean"])][-LAST:]


def _counts(row: Mapping[str, Any], after: int) -> bool:
    # Tables from other sources may lack the number of updates.
    return float(row.get("updates", 1)) > 0 and int(row["steps"]) > after


def read_results(path: Path, *, after: int = -1, of_run: bool = True) -> Results:
    """Reads `evaluations.csv`. A missing table counts as empty.

    If the last row of a run's table has no newline, the run died while writing it: it is ignored.

    Args:
        path: The table.
        after: Step of the last override. Evaluations up to this step do not count for the best
            return and the score. -1 if no setting was overridden.
        of_run: Whether a run wrote the table. Tables from other sources may lack the last newline
            and some values.

    Raises:
        RunError: If the table is damaged, or is not a regular file.
    """
    files = RunFiles(path.parent)
    steps, returns, counted = array("q"), array("d"), array("b")
    success, seconds = array("d"), array("d")
    try:
        if files.size(path.name) > _LARGEST:
            raise ValueError(f"it must have at most {_LARGEST} bytes; got {files.size(path.name)}")
        with suppress(FileNotFoundError), files.open(path.name) as file:
            for row in _rows(file, of_run):
                steps.append(int(row["steps"]))
                returns.append(float(row["return_mean"]))
                counted.append(_counts(row, after))
                success.append(float(row.get(SUCCESS) or "nan"))
                seconds.append(float(row.get("seconds") or "nan"))
        found = Results(
            np.array(steps),
            np.array(returns),
            np.array(counted, bool),
            np.array(success),
            np.array(seconds),
            after,
        )
        if not (np.diff(found.steps) > 0).all() or not np.isfinite(found.return_mean).all():
            raise ValueError("steps must increase and returns must be finite")
        return found
    except (OSError, ValueError, KeyError, TypeError, OverflowError, csv.Error) as error:
        raise RunError(f"{path} is damaged and cannot be read: {error!r}") from error


def _rows(file: BinaryIO, of_run: bool) -> Iterator[dict[str, str]]:
    """Yields the rows of a table one by one, to limit memory use."""
    header: list[str] = []
    for _ in range(_MOST + 2):  # one more than the header and all allowed rows
        line = file.readline(LONGEST_ROW)
        is_torn = of_run and not line.endswith(b"\n")
        if len(line) == LONGEST_ROW:
            raise ValueError(f"a line has more than {LONGEST_ROW} bytes")
        if not line or is_torn:
            return
        values = next(csv.reader([line.decode()]), [])
        if of_run and header and values and len(values) != len(header):
            raise ValueError("a row and the header have different numbers of values")
        if header and values:
            yield dict(zip(header, values, strict=False))
        header = header or values
    raise ValueError(f"it has more than {_MOST} rows")


def last_step_of(path: Path) -> int | None:
    """Returns the step of the last row of `evaluations.csv`; None if it is empty or damaged."""
    return _intact_results(path).last_step


def _intact_results(path: Path, after: int = -1) -> Results:
    """Reads the results, or returns empty ones if the table is damaged."""
    try:
        return read_results(path, after=after)
    except RunError:
        nothing = np.zeros(0)
        return Results(nothing, nothing, nothing.astype(bool), nothing, nothing)


def format_return(value: float) -> str:
    """Formats a return for display: one decimal if large, four significant digits if small."""
    return f"{value:.1f}" if 100 <= abs(value) < 1e12 else f"{value:.4g}"
