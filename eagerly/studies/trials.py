"""The trials of a study, and the results of their runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from eagerly.storage.evaluations import read_results
from eagerly.storage.run_settings import format_setting

COMPLETE, PRUNED, FAILED, RUNNING = "complete", "pruned", "failed", "running"
_SHARE = 3  # the score is the mean of the last third of the evaluations


@dataclass(frozen=True)
class Trial:
    """A trial: settings, and the results of their runs so far.

    Attributes:
        number: The number of the trial, from 0.
        drawn: Values drawn by Optuna, by setting.
        state: `COMPLETE`, `PRUNED`, `FAILED` or `RUNNING`.
        values: The mean return over the seeds by step, up to the step at which it was pruned, or
            the last evaluation before it failed.
    """

    number: int
    drawn: Mapping[str, Any]
    state: str = RUNNING
    values: Mapping[int, float] = field(default_factory=dict)

    @property
    def score(self) -> float | None:
        """The mean of the last third of the evaluations, or None without one."""
        return late_mean(list(self.values.values()))


def late_mean(returns: Sequence[float]) -> float | None:
    """Returns the mean of the last third of some returns, or None without returns."""
    count = math.ceil(len(returns) / _SHARE)
    return float(np.mean(returns[-count:])) if count else None


def run_score(run: Path) -> float:
    """Returns the score of a run, as for a trial; NaN without an evaluation that counts.

    Raises:
        RunError: If the evaluations are damaged.
    """
    score = late_mean(list(counted_returns(run).values()))
    return math.nan if score is None else score


def counted_returns(run: Path) -> dict[int, float]:
    """Returns the mean return by step of the evaluations of a run that count.

    Raises:
        RunError: If the evaluations are damaged.
    """
    found = read_results(run / "evaluations.csv")
    rows = zip(found.steps.tolist(), found.return_mean.tolist(), found.counted, strict=True)
    return {step: value for step, value, counts in rows if counts}


def described(settings: Mapping[str, Any]) -> str:
    """Returns settings as text. Numbers have four significant digits."""
    return ", ".join(
        f"{name} {f'{value:.4g}' if isinstance(value, float) else format_setting(value)}"
        for name, value in settings.items()
    )
