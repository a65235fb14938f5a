"""History of the episodes in progress, sufficient to restore each one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eagerly.environments.group import UNCHANGED, EnvironmentGroup, FinishedEpisode, Rollout
from eagerly.workers.worker import Request


class EpisodeLog:
    """Episode numbers of N environments, with the actions and returns so far.

    Args:
        count: N.
        keeps_actions: Whether actions are recorded for replay.

    Attributes:
        keeps_actions: As passed in.
        episodes: Episode number of each environment.
        returns: Sum of the current episode's rewards so far, `[N]`.
        lengths: Number of steps so far, `[N]`.
        observations: Current observations, `[N, O]`, float32.
        kwargs: Changed keyword arguments of each environment in its current episode, as JSON.
        next_kwargs: Those of episodes that begin in the current or next round.
    """

    def __init__(self, count: int, *, keeps_actions: bool) -> None:
        self.episodes = [0] * count
        self.returns, self.lengths = np.zeros(count), np.zeros(count, np.int64)
        self.observations = np.empty((count, 0), np.float32)
        self.kwargs, self.next_kwargs = [UNCHANGED] * count, UNCHANGED
        self.keeps_actions = keeps_actions
        self._actions: list[list[np.ndarray]] = [[] for _ in self.episodes]

    def count(self, rollout: Rollout) -> None:
        """Records T steps of all environments and adds the finished episodes to the rollout."""
        for step, (actions, rewards) in enumerate(
            zip(rollout.executed, rollout.rewards, strict=True)
        ):
            self.returns += rewards
            self.lengths += 1
            if self.keeps_actions:
                for log, action in zip(self._actions, actions, strict=True):
                    log.append(action)
            if rollout.infos and (ended := rollout.ended[step]).any():
                for index in np.flatnonzero(ended).tolist():
                    total, length = float(self.returns[index]), int(self.lengths[index])
                    rollout.episodes.append(FinishedEpisode(index, total, length))
                self.begin_next(ended)
        for index, kwargs, _ in rollout.recreated:
            self.kwargs[index] = kwargs
        self.observations = rollout.observations[-1]

    def begin_next(self, where: np.ndarray) -> None:
        """Starts the next episode of the environments in the mask `where`, `[N]` bool."""
        for index in np.flatnonzero(where).tolist():
            self.episodes[index] += 1
            self._actions[index] = []
            self.returns[index], self.lengths[index] = 0.0, 0

    def begin_fresh(self, where: np.ndarray) -> None:
        """Starts the next episode of environments whose episode cannot continue, `[N]` bool."""
        self.begin_next(where)
        for index in np.flatnonzero(where).tolist():
            self.kwargs[index] = self.next_kwargs

    def begin(self, numbers: range, fresh: np.ndarray | None = None) -> Request:
        """Returns the request that resets a group to its episodes and replays them.

        Args:
            numbers: Indices of the group's environments.
            fresh: Mask `[G]` of environments that begin their next episode instead. Those that do
                not are neither reset nor replayed. None: all are replayed.
        """
        where = np.zeros(len(numbers), bool) if fresh is None else fresh
        episodes = [
            self.episodes[n] + int(begins) for n, begins in zip(numbers, where, strict=True)
        ]
        actions = [
            np.array([] if begins else self._actions[n])
            for n, begins in zip(numbers, where, strict=True)
        ]
        kwargs = [
            self.next_kwargs if begins else self.kwargs[n]
            for n, begins in zip(numbers, where, strict=True)
        ]
        return EnvironmentGroup.begin, (episodes, actions, fresh, kwargs)

    def state(self, shape: Sequence[int]) -> dict[str, Any]:
        """Returns the state for `restore`.

        Args:
            shape: Shape of an action. The actions of an episode are saved as `[T, *shape]`.
        """
        return {
            "episodes": list(self.episodes),
            "actions": [np.array(log).reshape(len(log), *shape) for log in self._actions],
            "returns": self.returns.tolist(),
            "restorable": self.keeps_actions,
            "observations": self.observations,
        }

    def restore(self, state: Mapping[str, Any], why_not: str = "") -> str:
        """Restores the log of saved episodes, or only their numbers if replaying is impossible.

        Args:
            state: The result of `state`.
            why_not: Another reason not to replay the episodes, if any.

        Returns:
            Why the episodes cannot be replayed; "" if they can.

        Raises:
            ValueError: If the numbers of episodes, action sequences and returns differ.
        """
        count, episodes = len(self.episodes), [int(number) for number in state["episodes"]]
        if not len(episodes) == len(state["actions"]) == len(state["returns"]):
            raise ValueError(f"each of the episodes {episodes} must have actions and a return")
        self.episodes = (episodes + [0] * count)[:count]
        if why_not:
            reason = why_not
        elif not self.keeps_actions:
            reason = "--restore-episodes no"
        elif not state["restorable"]:
            reason = "their actions were not recorded (--restore-episodes no)"
        elif len(episodes) != count:
            reason = f"the saved run had {len(episodes)} environments"
        else:
            self._actions = [list(actions) for actions in state["actions"]]
            self.lengths[:] = [len(actions) for actions in self._actions]
            self.returns[:] = state["returns"]
            return ""
        return reason
