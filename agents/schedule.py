"""What happens in which update, settled while updates are traced: no branch is compiled."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import tensorflow as tf

Due = tuple[int, ...]  # the rhythms that an update completes
# A program writes out the updates of a period. In a longer period every update is a call.
LONGEST_PERIOD = 8


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
    """Returns the rhythms of which the number of an update is a multiple."""
    return tuple(every for every in rhythms if update % every == 0)


@functools.cache
def _due_in_period(rhythms: tuple[int, ...]) -> tuple[Due, ...]:
    return tuple(due_in(update, rhythms) for update in range(1, math.lcm(*rhythms) + 1))


def parts_of(
    made: int, updates: int, rhythms: tuple[int, ...], longest: int = LONGEST_PERIOD
) -> Iterator[tuple[tuple[Due, ...], int]]:
    """Divides updates into parts: whole periods of the rhythms, and single updates around them.

    Args:
        made: Number of the updates before.
        updates: Number of updates to divide.
        rhythms: Each at least 1.
        longest: Updates of the longest period that is not divided.

    Yields:
        What is due in the updates of a part, and how many times they are repeated.
    """
    period, end = math.lcm(*rhythms), made + updates
    while made < end:
        times = (end - made) // period if made % period == 0 and period <= longest else 0
        yield (_due_in_period(rhythms), times) if times else ((due_in(made + 1, rhythms),), 1)
        made += period * times or 1
