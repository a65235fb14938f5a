"""A curriculum: an environment with a difficulty, and a callback that raises it.

`python -m tests.eagerly.training.climbing SETTINGS RUN [--collectors KIND --num-collectors N]`
trains a run with it; SETTINGS are JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from eagerly import Callback
from eagerly.environments.group import Rollout
from eagerly.training.callbacks import TrainerView
from tests.toys import Counting


class Slope(Counting):
    """Observes its difficulty; higher difficulties have longer episodes of 3 to 6 steps.

    Args:
        difficulty: The difficulty.
        rows: Number of observations; the spaces differ unless it is 2.
    """

    def __init__(self, difficulty: int = 0, rows: int = 2) -> None:
        super().__init__(length=3 + difficulty % 4)
        self.difficulty = difficulty
        if rows != 2:
            self.observation_space = type(self.observation_space)(-1.0, 1.0, (rows,))

    def step(self, action: np.ndarray) -> Any:
        self.start -= float(action[0]) * self.difficulty
        return super().step(action)

    def _observation(self) -> np.ndarray:
        return np.array([self.start / 1000, float(self.difficulty)])


class Climb(Callback):
    """Raises the difficulty every few steps, in different callback methods.

    Args:
        every: Steps between two changes.
        rows: Sets `rows` too, from step 30.
    """

    def __init__(self, every: int = 10, rows: int = 2) -> None:
        self._every, self._rows = every, rows

    def _climb(self, training: TrainerView, offset: int) -> None:
        wanted = (training.steps + offset) // self._every
        training.set_env_kwargs(difficulty=max(wanted, training.env_kwargs.get("difficulty", 0)))
        if training.steps >= 30 and self._rows != 2:
            training.set_env_kwargs(rows=self._rows)

    def on_rollout(self, training: TrainerView, rollout: Rollout) -> None:
        self._climb(training, 0)

    def on_update(self, training: TrainerView, metrics: Any) -> None:
        self._climb(training, 3)

    def on_evaluation(self, training: TrainerView, evaluation: Any, is_best: bool) -> None:
        self._climb(training, 7)


if __name__ == "__main__":
    from tests.small_runs import train_in

    settings = json.loads(sys.argv[1])
    if words := sys.argv[3:]:
        settings |= {"collectors": words[1], "num_collectors": int(words[3])}
    train_in(Path(sys.argv[2]), env=Slope, callbacks=[Climb()], **settings)
