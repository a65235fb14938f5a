"""The update budget: how many updates the steps done allow, counted exactly and cheaply."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import ClassVar

from eagerly.environments.group import Rollout
from eagerly.state import Saved

# More than any run leaves: long episodes of many environments owe so much where updates are made at
# their ends.
_LARGEST = 10**9


class UpdateBudget(Saved):
    """Updates that the steps done allow and that are not yet made, in calls of a fixed size.

    The trainer calls `record_rollout` after every round, then makes calls while `is_call_due`, and
    only then collects again. It saves the state, so that a run that was stopped between two calls
    makes the rest of them first. A subclass changes when updates are made: it overrides
    `record_rollout` to count steps later, and names its own attributes in `_saved`, beside those of
    this class.

    It counts in whole numbers of a fraction of an update: Python's fractions would cost more in
    every step than storing the transition does.

    Args:
        replay_ratio: Updates per step.
        per_call: Updates made in one call.

    Attributes:
        warmup_ends_with_episode: Whether random actions continue, in all environments, to the end
            of the first round in which an episode ends at or after `warmup_steps` steps.
        is_call_due: Whether a whole call is owed.
    """

    warmup_ends_with_episode: ClassVar[bool] = False
    _saved: ClassVar[tuple[str, ...]] = ("owed",)
    is_call_due: bool

    def __init__(self, replay_ratio: Fraction, per_call: int) -> None:
        self._ratio, self._per_call = replay_ratio, per_call
        self.owed = Fraction(0)

    @property
    def owed(self) -> Fraction:
        """Updates owed, a fraction where the replay ratio is one."""
        return Fraction(self._owed, self._unit)

    @owed.setter
    def owed(self, updates: Fraction) -> None:
        if updates > _LARGEST:
            raise ValueError(f"{updates} updates are owed, which no run leaves")
        self._unit = math.lcm(self._ratio.denominator, updates.denominator)
        self._owed = int(updates * self._unit)
        self._step, self._call = int(self._ratio * self._unit), self._per_call * self._unit
        self.is_call_due = self._owed >= self._call

    def record_rollout(self, rollout: Rollout, steps: int) -> None:
        """Counts the steps of a round.

        Args:
            rollout: The round.
            steps: How many of its steps came after the warm-up and owe updates, in [0, T N].

        Raises:
            RunStoppedError: If the run cannot continue. It ends, saved, with that message.
        """
        self._owed += self._step * steps
        self.is_call_due = self._owed >= self._call

    def record_updates(self) -> None:
        """Counts a call."""
        self._owed -= self._call
        self.is_call_due = self._owed >= self._call

    def scalars(self) -> dict[str, float]:
        """Returns numbers that curves show."""
        return {}
