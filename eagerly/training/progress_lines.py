"""Progress as lines of text, for logs of runs that are never evaluated."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from eagerly.environments.group import Rollout
from eagerly.storage.evaluations import format_return
from eagerly.training.callbacks import Callback, TrainerView


class ProgressLines(Callback):
    """Prints a line at the end of the first round of each minute.

    It contains the step, the time of day, the steps per second, and the number and the mean return
    of the episodes that ended since the last line.

    Args:
        say: Prints a line.
        seconds: Minimum interval between two lines.
    """

    def __init__(self, say: Callable[[str], object], seconds: float = 60.0) -> None:
        self._say, self._seconds = say, seconds

    def on_begin(self, training: TrainerView) -> None:
        """Starts the first interval."""
        self._begin(training.steps)

    def _begin(self, step: int) -> None:
        self._began, self._step = time.monotonic(), step
        self._returns: list[float] = []

    def on_rollout(self, training: TrainerView, rollout: Rollout) -> None:
        """Keeps the returns of finished episodes for the next line."""
        self._returns += [each.total_reward for each in rollout.episodes]

    def on_round(self, training: TrainerView) -> None:
        """Prints a line if the interval has passed."""
        if (elapsed := time.monotonic() - self._began) < self._seconds:
            return
        speed = (training.steps - self._step) / elapsed
        text = f"step {training.steps} at {time.strftime('%H:%M')}: {speed:.1f} steps per second"
        if self._returns:
            mean = format_return(float(np.mean(self._returns)))
            text += f", episodes: {len(self._returns)}, mean return: {mean}"
        with suppress(OSError):  # a closed terminal must not end the run
            self._say(text)
        self._begin(training.steps)
