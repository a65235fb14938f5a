"""What episodes in progress have done: enough to bring any of them back to where it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from eagerly.collectors.host import Begin


class FinishedEpisode(NamedTuple):
    """An episode that has ended.

    Attributes:
        environment: Index of its environment, in [0, N).
        total_reward: Sum of its rewards, not discounted.
        length: Its steps.
        steps_left: How many steps of its environment followed in the same round.
    """

    environment: int
    total_reward: float
    length: int
    steps_left: int = 0


class EpisodeLog:
    """The episodes of N environments: their numbers, and their actions and returns so far.

    Args:
        count: N.
        keeps_actions: Whether actions are kept, to repeat them.

    Attributes:
        episodes: The number of each one's episode, in its environment.
        returns: The sum of its rewards so far, `[N]`.
        lengths: Its steps so far, `[N]`.
    """

    def __init__(self, count: int, *, keeps_actions: bool) -> None:
        self.episodes = [0] * count
        self.returns, self.lengths = np.zeros(count), np.zeros(count, np.int64)
        self._keeps_actions = keeps_actions
        self._actions: list[list[np.ndarray]] = [[] for _ in self.episodes]

    def count(
        self, actions: np.ndarray, rewards: np.ndarray, ended: np.ndarray, steps_left: int
    ) -> list[FinishedEpisode]:
        """Counts a step of all environments, and returns the episodes that ended with it.

        Args:
            actions: `[N, ...]`, in the environments' units.
            rewards: `[N]`.
            ended: `[N]` bool.
            steps_left: How many more steps follow in the same round.
        """
        self.returns += rewards
        self.lengths += 1
        if self._keeps_actions:
            for log, action in zip(self._actions, actions, strict=True):
                log.append(action)
        found = [
            FinishedEpisode(index, float(self.returns[index]), int(self.lengths[index]), steps_left)
            for index in np.flatnonzero(ended).tolist()
        ]
        if found:
            self.begin_next(ended)
        return found

    def begin_next(self, where: np.ndarray) -> None:
        """Goes on to the next episode where `[N]` bool says so."""
        for index in np.flatnonzero(where).tolist():
            self.episodes[index] += 1
            self._actions[index] = []
            self.returns[index], self.lengths[index] = 0.0, 0

    def begin(self, numbers: range, fresh: np.ndarray | None = None) -> Begin:
        """Returns the order that brings a group into its episodes.

        Args:
            numbers: The group's environments.
            fresh: Where the next episode is to begin instead, `[G]` bool.
        """
        fresh = np.zeros(len(numbers), bool) if fresh is None else fresh
        return Begin(
            [self.episodes[number] + int(fresh[place]) for place, number in enumerate(numbers)],
            [
                np.array([] if fresh[place] else self._actions[number])
                for place, number in enumerate(numbers)
            ],
        )

    def actions(self, shape: Sequence[int]) -> list[np.ndarray]:
        """Returns the actions of each episode, `[T, ...]` with the shape of one behind it."""
        return [np.array(log).reshape(len(log), *shape) for log in self._actions]

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over episodes with their actions, before they are repeated."""
        self._actions = [list(actions) for actions in state["actions"]]
        self.lengths[:] = [len(actions) for actions in self._actions]
        self.returns[:] = state["returns"]
