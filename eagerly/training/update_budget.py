"""The update budget: the exact number of updates permitted by the steps made so far."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import ClassVar

from eagerly.environments.group import Rollout
from eagerly.state import Saved

# Upper bound for saved values. Many environments with long episodes accumulate large budgets if
# updates happen only when episodes end.
_LARGEST = 10**9


class UpdateBudget(Saved):
    """Counts the updates that are owed: permitted by the steps so far, but not made yet.

    Updates are made in calls of a fixed size. The trainer calls `record_rollout` after every round,
    then makes calls while `is_call_due` is true, and only then collects again. Checkpoints include
    the state, so that a run stopped between two calls makes the remaining calls first. A subclass
    can change when updates are made: override `record_rollout` to count steps later, and add its
    attributes to `_saved`.

    Internally, counts are integers in units of a fraction of an update, because arithmetic with
    `Fraction` at every step would cost more than storing the transition.

    Args:
        replay_ratio: Updates per environment step.
        per_call: Updates per call of the train body.

    Attributes:
        warmup_ends_with_episode: Whether random actions continue, in all environments, to the end
            of the first round in which an episode ends at or after `warmup_steps` steps.
        is_call_due: Whether the updates of a whole call are owed.
    """

    warmup_ends_with_episode: ClassVar[bool] = False
    _saved: ClassVar[tuple[str, ...]] = ("owed",)
    is_call_due: bool

    def __init__(self, replay_ratio: Fraction, per_call: int) -> None:
        self._ratio, self._per_call = replay_ratio, per_call
        self.owed = Fraction(0)

    @property
    def owed(self) -> Fraction:
        """Updates owed, possibly fractional."""
        return Fraction(self._owed, self._unit)

    @owed.setter
    def owed(self, updates: Fraction) -> None:
        if updates > _LARGEST:
            raise ValueError(f"{updates} updates owed, more than any run accumulates")
        self._unit = math.lcm(self._ratio.denominator, updates.denominator)
        self._owed = int(updates * self._unit)
        self._step, self._call = int(self._ratio * self._unit), self._per_call * self._unit
        self.is_call_due = self._owed >= self._call

    def record_rollout(self, rollout: Rollout, steps: int) -> None:
        """Counts the steps of a round.

        Args:
            rollout: The round.
            steps: Number of its steps after the warm-up, in [0, T N]. Only these entail updates.

        Raises:
            RunStoppedError: If the run cannot continue. It is saved and ends with this message.
        """
        self._owed += self._step * steps
        self.is_call_due = self._owed >= self._call

    def record_updates(self) -> None:
        """Subtracts the updates of one call."""
        self._owed -= self._call
        self.is_call_due = self._owed >= self._call

    def scalars(self) -> dict[str, float]:
        """Returns values to plot as curves; none by default."""
        return {}
