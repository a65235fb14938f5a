"""A run on the terminal: a progress bar, or a line per evaluation."""

from __future__ import annotations

from eagerly.scripts.output import tell
from eagerly.training.callbacks import ProgressBar, Training, format_evaluation
from eagerly.training.evaluation import Evaluation


class Screen(ProgressBar):
    """Shows a progress bar; where that is not shown, prints a line per evaluation.

    Args:
        progress: Whether a bar is wanted, where there is a terminal.
    """

    def __init__(self, progress: bool) -> None:
        super().__init__(disable=None if progress else True)

    def on_evaluation(self, training: Training, evaluation: Evaluation, is_best: bool) -> None:
        """Shows the return."""
        if self.is_shown:
            super().on_evaluation(training, evaluation, is_best)
        else:
            tell(f"step {training.steps}: evaluation {format_evaluation(evaluation, is_best)}")
