"""What an algorithm may decide beside its updates: when they are made, and what is evaluated.

`Agent` has a method for each of them, which leaves it to the run.
"""

from __future__ import annotations

from typing import Protocol

from eagerly.state import Stateful


class Budget(Stateful, Protocol):
    """How many updates may be made; `training.update_budget.UpdateBudget` is the run's.

    The trainer counts each step, then makes calls while one is due, and only then steps again. It
    saves the state, so that a run that was stopped between two calls makes the rest of them first.
    """

    @property
    def is_call_due(self) -> bool:
        """Whether a whole call is owed."""

    def stepped(self, total: int, new: int) -> None:
        """Counts steps.

        Args:
            total: Steps done so far, with the new ones.
            new: How many of them are new, N.
        """

    def paid(self) -> None:
        """Counts a call."""


class FinishedEpisode(Protocol):
    """An episode that has ended, with exploration; `environments.vector` makes them."""

    @property
    def environment(self) -> int:
        """Index of its environment, in [0, N)."""

    @property
    def total_reward(self) -> float:
        """Sum of its rewards, not discounted."""

    @property
    def length(self) -> int:
        """Its steps."""
