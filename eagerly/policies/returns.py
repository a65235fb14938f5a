"""The discounted returns of episodes in progress, used to normalize rewards."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from eagerly.state import Saved


class CountsRows(Protocol):
    """Running statistics of rows of numbers."""

    def update(self, rows: np.ndarray, /) -> None:
        """Updates the statistics with rows `[N, size]`."""


class DiscountedReturns(Saved):
    """Updates statistics with the running discounted returns of N environments, G ← γ G + r.

    Args:
        statistics: Receives the returns of every step, as rows `[N, 1]`.
        discount: γ, in [0, 1].
    """

    _saved = ("_returns",)

    def __init__(self, statistics: CountsRows, discount: float) -> None:
        self._statistics, self._discount = statistics, discount
        self._returns = np.zeros(0)

    def update(self, rewards: np.ndarray, ended: np.ndarray) -> None:
        """Adds the rewards `[N]` of a step, then resets the returns of episodes that it ended."""
        if len(self._returns) != len(rewards):
            self._returns = np.zeros(len(rewards))
        self._returns = self._discount * self._returns + rewards
        self._statistics.update(self._returns[:, np.newaxis])
        self._returns[ended] = 0.0

    def on_reset(self, began: np.ndarray) -> None:
        """Resets the returns of environments in which an episode begins; `began` is `[N]` bool."""
        if len(began) == len(self._returns):
            self._returns[began] = 0.0

    def _check(self, values: dict[str, Any]) -> None:
        if values["returns"].ndim != 1:
            raise ValueError(f"returns must have shape [N]; got {values['returns']}")
