"""What happens in which update, settled while updates are traced: no branch is compiled."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

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


@dataclass(frozen=True)
class Schedule:
    """Which updates are due for what, with rhythms of so many updates each.

    Args:
        rhythms: Each at least 1.

    Attributes:
        period: Updates after which everything repeats.
        phases: What can be due in an update, in the order of their first updates.

    Raises:
        ValueError: If a rhythm is below 1, or they meet too rarely to be compiled.
    """

    rhythms: tuple[int, ...] = ()
    period: int = field(init=False)
    phases: tuple[Due, ...] = field(init=False)

    def __post_init__(self) -> None:
        if any(every < 1 for every in self.rhythms):
            raise ValueError(f"rhythms must be at least 1; got {self.rhythms}")
        # Each of them breaks a round where it is due, and behind that.
        period = math.lcm(*self.rhythms)
        if sum(2 * period // every for every in self.rhythms if every > 1) > _MOST_RUNS:
            raise ValueError(
                f"rhythms of {self.rhythms} updates repeat together only every {period}: choose "
                "multiples of one another, or let what is rare happen between calls"
            )
        object.__setattr__(self, "period", period)
        phases = tuple(dict.fromkeys(map(self.due, range(1, period + 1))))
        object.__setattr__(self, "phases", phases)

    def due(self, update: int) -> Due:
        """Returns the rhythms of which the number of an update is a multiple."""
        return frozenset(every for every in self.rhythms if update % every == 0)

    def runs(self, updates: Sequence[int]) -> Iterator[tuple[Due, int]]:
        """Yields, for updates that follow one another, what is due in how many in a row."""
        for due, run in itertools.groupby(updates, self.due):
            yield due, len(list(run))

    def phase(self, due: Due, update: tf.Tensor) -> Phase:
        """Returns the phase of an update of that number."""
        return Phase(update, due, self.rhythms)
