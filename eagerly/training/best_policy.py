"""The policies that a checkpoint keeps: the one of now, and the best one so far."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Weights = dict[str, np.ndarray]


class Policies:
    """The actor's weights as they are, and as they were in the best evaluation so far.

    Args:
        weights: Copies the actor's weights, by path.

    Attributes:
        best_step: The step of the best evaluation; None before the first one that counts.
        best_return: Its mean return, -inf before the first one that counts.
    """

    def __init__(self, weights: Callable[[], Weights]) -> None:
        self._weights = weights
        self._best: Weights = {}
        self.best_step: int | None = None
        self.best_return = -math.inf

    def evaluated(self, step: int, updates: int, mean_return: float) -> bool:
        """Keeps the weights if their mean return is the best so far, and says whether it is.

        An evaluation before the first update does not count: a lucky initialization would be kept
        as what was learned.
        """
        if not updates or (self.best_step is not None and mean_return <= self.best_return):
            return False
        self.best_step, self.best_return = step, float(mean_return)
        self._best = self._weights()
        return True

    def forget_best(self) -> None:
        """Begins the search for the best policy anew."""
        self.best_step, self.best_return, self._best = None, -math.inf, {}

    def state(self) -> dict[str, Any]:
        """Returns the weights, and the step and return of the best."""
        best = {"step": self.best_step, "return": self.best_return, "weights": self._best}
        return {"latest": self._weights(), "best": None if self.best_step is None else best}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over the best policy of what `state` returned.

        Raises:
            ValueError: If its return is not finite.
        """
        self.forget_best()
        if (best := state["best"]) is not None:
            if not math.isfinite(best["return"]):
                raise ValueError(f"the best return is {best['return']}")
            self.best_step, self.best_return = int(best["step"]), float(best["return"])
            self._best = dict(best["weights"])
