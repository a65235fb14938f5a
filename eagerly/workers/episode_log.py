"""What episodes in progress have done: enough to bring any of them back to where it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eagerly.environments.group import EnvironmentGroup, FinishedEpisode, Rollout
from eagerly.workers.worker import Request


class EpisodeLog:
    """The episodes of N environments: their numbers, and their actions and returns so far.

    Args:
        count: N.
        keeps_actions: Whether actions are kept, to repeat them.

    Attributes:
        episodes: The number of each one's episode, in its environment.
        returns: The sum of its rewards so far, `[N]`.
        lengths: Its steps so far, `[N]`.
        observations: The current ones, `[N, O]`, float32.
    """

    def __init__(self, count: int, *, keeps_actions: bool) -> None:
        self.episodes = [0] * count
        self.returns, self.lengths = np.zeros(count), np.zeros(count, np.int64)
        self.observations = np.empty((count, 0), np.float32)
        self._keeps_actions = keeps_actions
        self._actions: list[list[np.ndarray]] = [[] for _ in self.episodes]

    def count(self, rollout: Rollout) -> None:
        """Counts T steps of all environments, and adds the episodes that ended to the rollout."""
        for step, (actions, rewards) in enumerate(
            zip(rollout.executed, rollout.rewards, strict=True)
        ):
            self.returns += rewards
            self.lengths += 1
            if self._keeps_actions:
                for log, action in zip(self._actions, actions, strict=True):
                    log.append(action)
            if rollout.infos and (ended := rollout.ended[step]).any():
                for index in np.flatnonzero(ended).tolist():
                    total, length = float(self.returns[index]), int(self.lengths[index])
                    rollout.episodes.append(FinishedEpisode(index, total, length))
                self.begin_next(ended)
        self.observations = rollout.observations[-1]

    def begin_next(self, where: np.ndarray) -> None:
        """Goes on to the next episode where `[N]` bool says so."""
        for index in np.flatnonzero(where).tolist():
            self.episodes[index] += 1
            self._actions[index] = []
            self.returns[index], self.lengths[index] = 0.0, 0

    def begin(self, numbers: range, fresh: np.ndarray | None = None) -> Request:
        """Returns the request that brings a group into its episodes.

        Args:
            numbers: The group's environments.
            fresh: Where the next episode is to begin instead, `[G]` bool.
        """
        where = np.zeros(len(numbers), bool) if fresh is None else fresh
        episodes = [
            self.episodes[n] + int(begins) for n, begins in zip(numbers, where, strict=True)
        ]
        actions = [
            np.array([] if begins else self._actions[n])
            for n, begins in zip(numbers, where, strict=True)
        ]
        return EnvironmentGroup.begin, (episodes, actions, fresh)

    def actions(self, shape: Sequence[int]) -> list[np.ndarray]:
        """Returns the actions of each episode, `[T, ...]` with the shape of one behind it."""
        return [np.array(log).reshape(len(log), *shape) for log in self._actions]

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over episodes with their actions, before they are repeated."""
        self._actions = [list(actions) for actions in state["actions"]]
        self.lengths[:] = [len(actions) for actions in self._actions]
        self.returns[:] = state["returns"]
