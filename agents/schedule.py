"""Update phases, which provide the number of an update and the intervals that are due in it.

An interval of n updates is due in every update whose number is a multiple of n. Which intervals are
due is decided while tracing, so that the compiled programs contain no branches.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import tensorflow as tf

Intervals = tuple[int, ...]  # the intervals due in an update
Runs = tuple[tuple[Intervals, int], ...]  # each run: due intervals, number of consecutive updates
# Maximum number of these runs that the program of a period contains.
MOST_RUNS = 64


@dataclass(frozen=True)
class Phase:
    """The number of an update, and the intervals due in it.

    Attributes:
        update: Scalar int64, the number of the update; the first one has number 1.
    """

    update: tf.Tensor
    _due: Intervals
    _intervals: tuple[int, ...]

    def is_multiple_of(self, updates: int) -> bool:
        """Returns whether the update number is a multiple of `updates`.

        The result is a Python boolean, so an `if` costs nothing in the compiled program.

        Raises:
            ValueError: If `updates` is neither 1 nor in the algorithm's `intervals`.
        """
        if updates != 1 and updates not in self._intervals:
            raise ValueError(
                f"is_multiple_of({updates}) requires {updates} in the algorithm's `intervals`, got "
                f"{self._intervals}: add {updates}"
            )
        return updates == 1 or updates in self._due


def due_in(update: int, intervals: tuple[int, ...]) -> Intervals:
    """Returns the intervals that divide the update number."""
    return tuple(every for every in intervals if update % every == 0)


@functools.cache
def _runs_of_period(intervals: tuple[int, ...]) -> Runs:
    updates = range(1, math.lcm(*intervals) + 1)
    groups = itertools.groupby(updates, lambda update: due_in(update, intervals))
    return tuple((due, len(list(run))) for due, run in groups)


def parts_of(
    made: int, updates: int, intervals: tuple[int, ...], most_runs: int = MOST_RUNS
) -> Iterator[tuple[Runs, int, int]]:
    """Divides updates into whole periods of the intervals, and single updates before and after.

    A period is the least common multiple of the intervals.

    Args:
        made: Number of updates made before.
        updates: Number of updates to divide.
        intervals: Update intervals, each at least 1.
        most_runs: Periods with more runs are divided into single updates. 0 divides all periods.

    Yields:
        For each part, its runs, the number of updates per repetition, and the number of
        repetitions.
    """
    period, end = math.lcm(*intervals), made + updates
    while made < end:
        times = 0 if made % period else (end - made) // period
        if times and len(_runs_of_period(intervals)) <= most_runs:
            yield _runs_of_period(intervals), period, times
            made += period * times
        else:
            yield ((due_in(made + 1, intervals), 1),), 1, 1
            made += 1
