"""What happens in which update, settled while updates are traced: no branch is compiled."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import tensorflow as tf

Due = tuple[int, ...]  # the rhythms that an update completes
Runs = tuple[tuple[Due, int], ...]  # each: what is due, and the number of updates in a row
# A program holds the runs of a period one after the other.
MOST_RUNS = 64


@dataclass(frozen=True)
class Phase:
    """What happens in an update besides that which happens in all of them.

    Attributes:
        update: Scalar int64, the number of the update; the first one has number 1.
    """

    update: tf.Tensor
    _due: Due
    _rhythms: tuple[int, ...]

    def every(self, updates: int) -> bool:
        """Whether this is an update in which what happens every so many updates does.

        The answer is a Python truth value, so an `if` costs nothing in the compiled program.

        Raises:
            ValueError: If the algorithm has not named this number among its `rhythms`.
        """
        if updates != 1 and updates not in self._rhythms:
            raise ValueError(
                f"nothing was said to happen every {updates} updates: add {updates} to the "
                f"algorithm's rhythms, {self._rhythms}"
            )
        return updates == 1 or updates in self._due


def due_in(update: int, rhythms: tuple[int, ...]) -> Due:
    """Returns the rhythms that divide the number of an update."""
    return tuple(every for every in rhythms if update % every == 0)


@functools.cache
def _runs_of_period(rhythms: tuple[int, ...]) -> Runs:
    updates = range(1, math.lcm(*rhythms) + 1)
    groups = itertools.groupby(updates, lambda update: due_in(update, rhythms))
    return tuple((due, len(list(run))) for due, run in groups)


def parts_of(
    made: int, updates: int, rhythms: tuple[int, ...], most_runs: int = MOST_RUNS
) -> Iterator[tuple[Runs, int, int]]:
    """Divides updates into parts: whole periods of the rhythms, and single updates around them.

    Args:
        made: Number of the updates before.
        updates: Number of updates to divide.
        rhythms: Each at least 1.
        most_runs: Periods with more runs are divided into single updates; 0 divides every period.

    Yields:
        The runs of a part, how many updates they are, and how many times they are repeated.
    """
    period, end = math.lcm(*rhythms), made + updates
    while made < end:
        times = 0 if made % period else (end - made) // period
        if times and len(_runs_of_period(rhythms)) <= most_runs:
            yield _runs_of_period(rhythms), period, times
            made += period * times
        else:
            yield ((due_in(made + 1, rhythms), 1),), 1, 1
            made += 1
