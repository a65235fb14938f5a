"""Statistics over a few runs, with confidence intervals.

Follows Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical precipice"
(section 4): interquartile means instead of means or best seeds, percentile bootstrap intervals over
runs, stratified by task, and the probability of improvement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

RESAMPLES = 10_000
LEVEL = 0.95
_SEED = 0  # fixed, so that the same runs always give the same intervals

Statistic = Callable[..., Any]


@dataclass(frozen=True)
class Estimate:
    """A statistic and its bootstrap interval. Each field is a number or an array.

    `low` and `high` are NaN if there are fewer than two runs to resample, or a value is NaN.
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
    """Formats a number with four significant digits, or as an integer from 10³ to 10¹²."""
    return f"{value:.0f}" if 1e3 <= abs(value) < 1e12 else f"{value:.4g}"


def interquartile_mean(values: np.ndarray, axis: int = 0) -> Any:
    """Returns the mean of the middle half of the runs, such as the middle three of five."""
    return stats.trim_mean(values, 0.25, axis=axis)


STATISTICS: dict[str, Statistic] = {"iqm": interquartile_mean, "mean": np.mean}
TITLES = {"iqm": "interquartile mean", "mean": "mean"}


def over_runs(values: np.ndarray, statistic: Statistic = interquartile_mean) -> Estimate:
    """Estimates a statistic over runs `[n]`, or at each of the M points of curves `[n, M]`."""
    return _bootstrapped((np.asarray(values, float),), statistic)


def relative(
    tasks: Sequence[np.ndarray],
    references: Sequence[np.ndarray],
    zeros: Sequence[float],
) -> Estimate:
    """Estimates the mean over tasks of normalized interquartile means.

    Scores are normalized per task: a random policy has 0, and the interquartile mean of the
    reference runs is 1. Both groups of runs are resampled within each task.

    Args:
        tasks: Scores `[n]` for each task.
        references: Scores `[m]` of the reference runs for each task.
        zeros: Score of a random policy in each task, below every reference score. Otherwise, the
            scale of a bootstrap sample could be zero.
    """
    count = len(tasks)

    def scaled(*samples: np.ndarray, axis: int = 0) -> Any:
        shares = [
            (interquartile_mean(runs, axis) - zero) / (interquartile_mean(others, axis) - zero)
            for runs, others, zero in zip(samples[:count], samples[count:], zeros, strict=True)
        ]
        return np.mean(shares, axis=0)

    return _bootstrapped([np.asarray(task, float) for task in (*tasks, *references)], scaled)


def difference(first: np.ndarray, second: np.ndarray) -> Estimate:
    """Estimates the interquartile mean of runs `[n]` minus that of other runs `[m]`."""

    def subtracted(a: np.ndarray, b: np.ndarray, axis: int = 0) -> Any:
        return interquartile_mean(a, axis) - interquartile_mean(b, axis)

    return _bootstrapped([np.asarray(first, float), np.asarray(second, float)], subtracted)


def probability_of_improvement(
    first: Sequence[np.ndarray], second: Sequence[np.ndarray]
) -> Estimate:
    """Estimates the probability that a run of the first group outscores one of the second.

    The result is the mean of this probability over tasks. A tie counts as half a win.

    Args:
        first: Scores `[n]` of the first group for each task.
        second: Scores `[m]` of the second group for the same tasks.
    """
    count = len(first)

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
    if min(len(sample) for sample in samples) < 2 or np.isnan(value).any():
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
