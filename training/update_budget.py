"""The updates that steps owe, counted exactly and cheaply."""

from __future__ import annotations

import math
from fractions import Fraction


class Debt:
    """Updates owed by the steps done and not yet paid; paid in calls of a fixed size.

    It is counted in whole numbers of a fraction of an update: Python's fractions would cost more at
    every step than storing the transition does.

    Args:
        per_step: Updates owed for each step.
        per_call: Updates paid at once.
    """

    def __init__(self, per_step: Fraction, per_call: int) -> None:
        self._per_step, self._per_call = per_step, per_call
        self.updates = Fraction(0)

    @property
    def updates(self) -> Fraction:
        """Updates owed, a fraction where `per_step` is one."""
        return Fraction(self._owed, self._unit)

    @updates.setter
    def updates(self, updates: Fraction) -> None:
        self._unit = math.lcm(self._per_step.denominator, updates.denominator)
        self._owed = int(updates * self._unit)
        self._step, self._call = int(self._per_step * self._unit), self._per_call * self._unit

    @property
    def is_call(self) -> bool:
        """Whether a whole call is owed."""
        return self._owed >= self._call

    def step(self, steps: int) -> None:
        """Takes that so many more steps are done."""
        self._owed += self._step * steps

    def pay(self) -> None:
        """Takes that a call was made."""
        self._owed -= self._call
