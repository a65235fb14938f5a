"""How a run tells what happens: to a terminal, a log, or nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eagerly.training.evaluation import Evaluation


class Reporter:
    """Hears what happens in a run; this one keeps silent."""

    def say(self, line: str) -> None:
        """Takes a line that the user should read."""

    def stepped(self, steps: int) -> None:
        """Takes the environment steps done so far."""

    def evaluated(self, steps: int, evaluation: Evaluation, best: bool) -> None:
        """Takes an evaluation, and whether it is the best so far."""
