"""What happens in which update, settled while updates are traced: no branch is compiled."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import tensorflow as tf

Intervals = tuple[int, ...]  # the intervals that an update completes
Runs = tuple[tuple[Intervals, int], ...]  # each: what is due, and the number of updates in a row
# A program holds the runs of a period one after the other.
MOST_RUNS = 64


@dataclass(frozen=True)
class Phase:
    """What happens in an update besides that which happens in all of them.

    Attributes:
        update: Scalar int64, the number of the update; the first one has number 1.
    """

    update: tf.Tensor
    _due: Intervals
    _intervals: tuple[int, ...]

    def is_multiple_of(self, updates: int) -> bool:
        """Returns whether the update number is a multiple of `updates`.

        It is a Python boolean, so an `if` costs nothing in the compiled program.

        Raises:
            ValueError: If the number is not in the algorithm's `intervals`.
        """
        if updates != 1 and updates not in self._intervals:
            raise ValueError(
                f"is_multiple_of({updates}) requires {updates} in the algorithm's `intervals`, got "
                f"{self._intervals}: add {updates}"
            )
        return updates == 1 or updates in self._due


def due_in(update: int, intervals: tuple[int, ...]) -> Intervals:
    """Returns the intervals that divide the number of an update."""
    return tuple(every for every in intervals if update % every == 0)


@functools.cache
def _runs_of_period(intervals: tuple[int, ...]) -> Runs:
    updates = range(1, math.lcm(*intervals) + 1)
    groups = itertools.groupby(updates, lambda update: due_in(update, intervals))
    return tuple((due, len(list(run))) for due, run in groups)


def parts_of(
    made: int, updates: int, intervals: tuple[int, ...], most_runs: int = MOST_RUNS
) -> Iterator[tuple[Runs, int, int]]:
    """Divides updates into parts: whole periods of the intervals, and single updates around them.

    Args:
        made: Number of the updates before.
        updates: Number of updates to divide.
        intervals: Each at least 1.
        most_runs: Periods with more runs are divided into single updates; 0 divides every period.

    Yields:
        The runs of a part, how many updates they are, and how many times they are repeated.
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
