"""Statistics of a few runs, with intervals that say how little a few runs prove.

Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical precipice"
(section 4): interquartile means instead of means or best seeds, intervals by percentile bootstrap
over runs, stratified by task, and the probability that a run of one kind beats one of another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

RESAMPLES = 10_000
LEVEL = 0.95
_SEED = 0  # of the resampling: the same runs give the same intervals

Statistic = Callable[..., Any]


@dataclass(frozen=True)
class Estimate:
    """A statistic and the ends of its bootstrap interval; each a number or an array.

    With fewer than two runs there is nothing to resample, and the ends are NaN.
    """

    value: Any
    low: Any
    high: Any

    def __str__(self) -> str:
        value = format_number(self.value)
        if not np.isfinite(self.low):
            return value
        return f"{value} [{format_number(self.low)}, {format_number(self.high)}]"


def format_number(value: float) -> str:
    """Writes a number with four digits, or all those before the point."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def interquartile_mean(values: np.ndarray, axis: int = 0) -> Any:
    """Returns the mean of the middle half of the runs: of five, the middle three."""
    return stats.trim_mean(values, 0.25, axis=axis)


STATISTICS: dict[str, Statistic] = {"iqm": interquartile_mean, "mean": np.mean}


def over_runs(values: np.ndarray, statistic: Statistic = interquartile_mean) -> Estimate:
    """Estimates a statistic of runs `[n]`, or at each of M points of curves `[n, M]`."""
    return _bootstrapped((np.asarray(values, float),), statistic)


def relative(
    tasks: Sequence[np.ndarray],
    references: Sequence[np.ndarray],
    zeros: Sequence[float],
) -> Estimate:
    """Estimates the mean over tasks of the interquartile mean, on a scale that the tasks share.

    On it a task's zero has 0 and the mean of its references 1, so that the references beside
    themselves have 1. Runs and references are resampled, each task in itself.

    Args:
        tasks: Scores `[n]` for each task.
        references: Scores `[m]` of the runs beside which they stand.
        zeros: What a random policy scores in each task.

    Raises:
        ValueError: If a reference of a task is no better than its zero: there may be samples of
            them that the scale would divide by nothing.
    """
    count = len(tasks)
    for reference, zero in zip(references, zeros, strict=True):
        if not np.min(reference) > zero:
            raise ValueError(f"the references score {list(reference)}, no better than {zero}")

    def scaled(*samples: np.ndarray, axis: int = 0) -> Any:
        shares = [
            (interquartile_mean(runs, axis) - zero) / (interquartile_mean(others, axis) - zero)
            for runs, others, zero in zip(samples[:count], samples[count:], zeros, strict=True)
        ]
        return np.mean(shares, axis=0)

    return _bootstrapped([np.asarray(task, float) for task in (*tasks, *references)], scaled)


def difference(first: np.ndarray, second: np.ndarray) -> Estimate:
    """Estimates how much higher the interquartile mean of runs `[n]` is than of others, `[m]`."""

    def subtracted(a: np.ndarray, b: np.ndarray, axis: int = 0) -> Any:
        return interquartile_mean(a, axis) - interquartile_mean(b, axis)

    return _bootstrapped([np.asarray(first, float), np.asarray(second, float)], subtracted)


def probability_of_improvement(
    first: Sequence[np.ndarray], second: Sequence[np.ndarray]
) -> Estimate:
    """Estimates how probably a run of the first kind scores higher than one of the second.

    Args:
        first: Scores `[n]` for each task; a tie counts half.
        second: The same of the others, for the same tasks.
    """
    count = len(first)
    if count != len(second):
        raise ValueError(f"both must have the same tasks, got {count} and {len(second)}")

    def wins(*samples: np.ndarray, axis: int = 0) -> Any:
        moved = [np.moveaxis(sample, axis, -1) for sample in samples]
        pairs = zip(moved[:count], moved[count:], strict=True)
        shares = [
            (np.sign(a[..., :, np.newaxis] - b[..., np.newaxis, :]) / 2 + 0.5).mean((-2, -1))
            for a, b in pairs
        ]
        return np.mean(shares, axis=0)

    return _bootstrapped([np.asarray(task, float) for task in (*first, *second)], wins)


def _bootstrapped(samples: Sequence[np.ndarray], statistic: Statistic) -> Estimate:
    value = statistic(*samples, axis=0)
    if min(len(sample) for sample in samples) < 2:
        nothing = np.full(np.shape(value), np.nan)[()]
        return Estimate(value, nothing, nothing)
    found = stats.bootstrap(
        samples,
        statistic,
        axis=0,
        n_resamples=RESAMPLES,
        batch=500,
        confidence_level=LEVEL,
        method="percentile",
        rng=np.random.default_rng(_SEED),
    )
    return Estimate(value, *found.confidence_interval)
