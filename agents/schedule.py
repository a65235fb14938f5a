"""What happens in which update, settled while updates are traced: no branch is compiled."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

Due = frozenset[int]  # the rhythms that an update completes
# A program holds the runs of a period one after the other.
_MOST_RUNS = 64


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


class Schedule:
    """Which updates are due for what, with rhythms of so many updates each.

    Args:
        rhythms: Each at least 1.

    Attributes:
        rhythms: As given.
        period: Updates after which everything repeats.
        phases: What can be due in an update, in the order of their first updates.

    Raises:
        ValueError: If a rhythm is below 1, or they meet too rarely to be compiled.
    """

    def __init__(self, rhythms: tuple[int, ...] = ()) -> None:
        if any(every < 1 for every in rhythms):
            raise ValueError(f"rhythms must be at least 1; got {rhythms}")
        # Each of them breaks a round where it is due, and behind that.
        self.rhythms, self.period = rhythms, math.lcm(*rhythms)
        if sum(2 * self.period // every for every in rhythms if every > 1) > _MOST_RUNS:
            raise ValueError(
                f"rhythms of {rhythms} updates repeat together only every {self.period}: choose "
                "multiples of one another, or let what is rare happen between calls"
            )
        self.phases = tuple(dict.fromkeys(map(self.due, range(1, self.period + 1))))

    def due(self, update: int) -> Due:
        """Returns the rhythms of which the number of an update is a multiple."""
        return frozenset(every for every in self.rhythms if update % every == 0)

    def runs(self) -> list[tuple[Due, int]]:
        """Lists the runs of a period: the due rhythms, and the number of updates in a row."""
        runs = itertools.groupby(range(1, self.period + 1), self.due)
        return [(due, len(list(run))) for due, run in runs]

    def parts(self, made: int, updates: int, one_by_one: bool) -> Iterator[tuple[Any, ...]]:
        """Divides updates into parts: whole periods together, and single updates around them.

        Args:
            made: Number of the updates before.
            updates: Number of updates to divide.
            one_by_one: Whether every part is a single update.

        Yields:
            The number of updates before a part, its length, and the number of its phase; None for
            whole periods.
        """
        end = made + updates
        while made < end:
            whole = 0 if made % self.period else (end - made) // self.period * self.period
            if whole and not one_by_one:
                yield made, whole, None
                made += whole
            else:
                yield made, 1, self.phases.index(self.due(made + 1))
                made += 1
