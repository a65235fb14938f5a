"""Sends requests to groups of environments and restores those whose collector was lost."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from eagerly.environments.group import Acts, EnvironmentGroup
from eagerly.environments.worker_process import LostError
from eagerly.errors import RunError
from eagerly.policies.numpy_actor import RowPolicy
from eagerly.workers.episode_log import EpisodeLog
from eagerly.workers.worker import Request

_log = logging.getLogger(__name__)
_TRIES = 5  # attempts before giving up on a collector that is lost each time


class Workers(Protocol):
    """Runs groups of environments, in this process or elsewhere."""

    def set_policies(self, policies: Mapping[int, Acts]) -> None:
        """Sets the policy of each group."""

    def ask(
        self, requests: Mapping[int, Request], actor: RowPolicy | None = None
    ) -> dict[int, Any]:
        """Calls methods of groups and waits for the results.

        Args:
            requests: Requests by group index.
            actor: Used by all policies from now on, to map observations to scores; None keeps the
                current actor.

        Returns:
            The result of each group, or a `LostError` if its collector was lost.

        Raises:
            RunError: If an environment fails.
        """

    def interrupt(self) -> float | None:
        """Aborts rollouts if possible, because their results are no longer needed.

        Returns:
            Seconds to wait for a rollout before closing; None: unlimited.
        """

    def expect_stop(self, *, expected: bool) -> None:
        """Shortens the wait for frozen collectors if the run was asked to stop."""

    def close(self) -> None:
        """Closes every environment."""


class Recovery:
    """Sends requests to groups and repeats those that a lost collector did not complete.

    Args:
        collectors: The workers that run the groups.
        groups: Indices of each group's environments.
        episodes: Log of the episodes in progress.

    Attributes:
        is_closing: Set to True to raise an error instead of restoring lost groups.
    """

    def __init__(self, collectors: Workers, groups: Sequence[range], episodes: EpisodeLog) -> None:
        self._collectors, self._groups, self._episodes = collectors, groups, episodes
        self._lost = np.zeros(len(episodes.episodes), bool)
        self.is_closing = False

    def taken_lost(self) -> np.ndarray:
        """Returns the mask `[N]` of lost environments, which began new episodes, and clears it."""
        lost, self._lost = self._lost, np.zeros(len(self._lost), bool)
        return lost

    def ask(
        self, requests: Mapping[int, Request], actor: RowPolicy | None = None
    ) -> dict[int, Any]:
        """Sends requests to groups. Lost groups are restored and receive their requests again.

        Args:
            requests: Requests by group index.
            actor: Used by all policies from now on, to map observations to scores; None keeps the
                current actor.

        Returns:
            The results, in the order of the requests.

        Raises:
            RunError: If an environment fails, or a collector is lost at every attempt or while
                closing.
        """
        answers = self._collectors.ask(requests, actor)
        tries: Counter[int] = Counter()
        while lost := {g: each for g, each in answers.items() if isinstance(each, LostError)}:
            tries.update(lost.keys())
            why = "; ".join(sorted({str(error) for error in lost.values()}))
            if self.is_closing:
                raise RunError(why)
            if max(tries.values()) == _TRIES:
                raise RunError(f"{why}: giving up after {_TRIES} attempts")
            again = {group: requests[group] for group in lost}
            repeats = self._episodes.keeps_actions and any(map(_moves, again.values()))
            then = " and replaying its episodes" if repeats else ""
            _log.warning("%s: restarting%s", why, then)
            answers |= self._ask_again(again, actor)
        return {group: answers[group] for group in requests}

    def _ask_again(
        self, requests: Mapping[int, Request], actor: RowPolicy | None
    ) -> dict[int, Any]:
        """Restores the current episodes of groups and repeats their requests."""
        moving = {g: self._groups[g] for g, request in requests.items() if _moves(request)}
        fresh = {group: np.ones(len(numbers), bool) for group, numbers in moving.items()}
        lost: dict[int, Any] = {}
        if self._episodes.keeps_actions:
            begins = {group: self._episodes.begin(numbers) for group, numbers in moving.items()}
            begun = self._collectors.ask(begins)
            lost = {group: each for group, each in begun.items() if isinstance(each, LostError)}
            fresh = {
                group: self._differing(self._groups[group], *begun[group])
                for group in begun.keys() - lost.keys()
            }
        begins = {}
        for group, where in fresh.items():
            self._note_lost(self._groups[group], where)
            if where.any():
                begins[group] = self._episodes.begin(self._groups[group], where)
        for answer in self._collectors.ask(begins).values():
            if isinstance(answer, LostError):  # `ask` then restores all these groups again
                return dict.fromkeys(requests, answer)
        asked = {group: request for group, request in requests.items() if group not in lost}
        return lost | self._collectors.ask(asked, actor)

    def _differing(
        self, numbers: range, observations: np.ndarray, returns: np.ndarray
    ) -> np.ndarray:
        """Returns the mask `[G]` of environments that the replay did not restore."""
        own = slice(numbers.start, numbers.stop)
        differ: np.ndarray = (observations != self._episodes.observations[own]).any(axis=1)
        return differ | (returns != self._episodes.returns[own])

    def _note_lost(self, numbers: range, fresh: np.ndarray) -> None:
        """Records and logs the environments of a group that begin new episodes, `[G]` bool."""
        self._lost[numbers] = fresh
        new = [number for number, begins in zip(numbers, fresh, strict=True) if begins]
        if new and self._episodes.keeps_actions:
            _log.warning("environments %s could not be restored and begin fresh episodes", new)


def _moves(request: Request) -> bool:
    return request[0] is EnvironmentGroup.rollout
