"""The update budget: how many updates the steps done allow, counted exactly and cheaply."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

_FRACTION = re.compile(r"\d{1,15}(/\d{1,15})?")
# More than any run leaves: long episodes of many environments owe so much where an algorithm hands
# steps over at their ends.
_LARGEST = 10**9


class UpdateBudget:
    """Updates owed by the steps done and not yet made; made in calls of a fixed size.

    It is counted in whole numbers of a fraction of an update: Python's fractions would cost more at
    every step than storing the transition does.

    Args:
        replay_ratio: Updates per step.
        per_call: Updates made in one call.

    Attributes:
        is_call_due: Whether a whole call is owed.
    """

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
        self._unit = math.lcm(self._ratio.denominator, updates.denominator)
        self._owed = int(updates * self._unit)
        self._step, self._call = int(self._ratio * self._unit), self._per_call * self._unit
        self.is_call_due = self._owed >= self._call

    def stepped(self, new: int) -> None:
        """Counts new steps that owe updates."""
        self._owed += self._step * new
        self.is_call_due = self._owed >= self._call

    def paid(self) -> None:
        """Counts a call."""
        self._owed -= self._call
        self.is_call_due = self._owed >= self._call

    def state(self) -> dict[str, Any]:
        """Returns the updates owed, exactly."""
        return {"owed": str(self.owed)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state` returned, also with another ratio or size of calls.

        Raises:
            ValueError: If it is more than any run leaves.
        """
        owed = str(state["owed"])
        if not _FRACTION.fullmatch(owed) or Fraction(owed) > _LARGEST:
            raise ValueError(f"{owed} updates are owed, which no run leaves")
        self.owed = Fraction(owed)
