"""The discounted returns of episodes in progress, by which rewards are normalised."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from eagerly.state import Saved


class CountsRows(Protocol):
    """Running statistics of rows of numbers."""

    def update(self, rows: np.ndarray) -> None:
        """Counts rows `[N, size]`."""


class DiscountedReturns(Saved):
    """Tracks the discounted returns so far of N environments, G ← γ G + r, in statistics.

    Args:
        statistics: Takes the returns of every step, as rows `[N, 1]`.
        discount: γ, in [0, 1].
    """

    _saved = ("_returns",)

    def __init__(self, statistics: CountsRows, discount: float) -> None:
        self._statistics, self._discount = statistics, discount
        self._returns = np.zeros(0)

    def update(self, rewards: np.ndarray, ended: np.ndarray) -> None:
        """Takes the rewards `[N]` of a step, and which episodes `[N]` ended with it."""
        if len(self._returns) != len(rewards):
            self._returns = np.zeros(len(rewards))
        self._returns = self._discount * self._returns + rewards
        self._statistics.update(self._returns[:, np.newaxis])
        self._returns[ended] = 0.0

    def on_reset(self, began: np.ndarray) -> None:
        """Resets the returns of the environments `[N]` that begin an episode to 0."""
        if len(began) == len(self._returns):
            self._returns[began] = 0.0

    def _check(self, values: dict[str, Any]) -> None:
        if values["returns"].ndim != 1:
            raise ValueError(f"there is one return for each environment; got {values['returns']}")
