"""Asking groups of environments, and bringing back those whose collector was lost."""

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
_TRIES = 5  # after which a collector that was lost at each of them is given up


class Workers(Protocol):
    """Where groups of environments are."""

    def set_policies(self, policies: Mapping[int, Acts]) -> None:
        """Takes the policy of each group."""

    def ask(
        self, requests: Mapping[int, Request], actor: RowPolicy | None = None
    ) -> dict[int, Any]:
        """Calls methods of groups, and waits for their answers.

        Args:
            requests: By the number of the group.
            actor: Maps observations to scores in all policies from now on; None: as before.

        Returns:
            The answer of each group, or a `LostError` where its collector was lost.

        Raises:
            RunError: If an environment fails, in what way it does.
        """

    def interrupt(self) -> float | None:
        """Breaks off rollouts where it can, because nobody needs them.

        Returns:
            How many seconds to wait for a rollout before closing; None: for as long as it takes.
        """

    def expect_stop(self) -> None:
        """Shortens the wait for collectors that are frozen, because the run is to stop."""

    def close(self) -> None:
        """Closes every environment."""


class Recovery:
    """Asks all groups, and has done again what a lost collector did not.

    Args:
        collectors: Where groups are.
        groups: The environments of each group.
        episodes: What the episodes in progress have done.
        restorable: Whether their actions are kept, to repeat them.

    Attributes:
        is_closing: Whether what is lost is not to be brought back any more.
    """

    def __init__(
        self,
        collectors: Workers,
        groups: Sequence[range],
        episodes: EpisodeLog,
        *,
        restorable: bool,
    ) -> None:
        self._collectors, self._groups = collectors, groups
        self._episodes, self._restorable = episodes, restorable
        self._lost = np.zeros(len(episodes.episodes), bool)
        self.is_closing = False

    def taken_lost(self) -> np.ndarray:
        """Returns, once, which environments began fresh episodes because they were lost, `[N]`."""
        lost, self._lost = self._lost, np.zeros(len(self._lost), bool)
        return lost

    def ask(
        self, requests: Mapping[int, Request], actor: RowPolicy | None = None
    ) -> dict[int, Any]:
        """Asks every group; those that are lost are brought back and asked again.

        Args:
            requests: By the number of the group.
            actor: What they act with.

        Returns:
            Their answers, in the order of the requests.

        Raises:
            RunError: If an environment fails, or a collector is lost at every try.
        """
        answers = self._collectors.ask(requests, actor)
        tries: Counter[int] = Counter()
        while lost := {g: each for g, each in answers.items() if isinstance(each, LostError)}:
            tries.update(lost.keys())
            why = "; ".join(sorted({str(error) for error in lost.values()}))
            if self.is_closing:
                raise RunError(why)
            if max(tries.values()) == _TRIES:
                raise RunError(f"{why}, as it did {_TRIES} times in a row")
            again = {group: requests[group] for group in lost}
            repeats = self._restorable and any(map(_moves, again.values()))
            then = ", and its episodes are repeated" if repeats else ""
            _log.warning("%s; it is started again%s", why, then)
            answers |= self._ask_again(again, actor)
        return {group: answers[group] for group in requests}

    def _ask_again(
        self, requests: Mapping[int, Request], actor: RowPolicy | None
    ) -> dict[int, Any]:
        """Brings groups back into their episodes, and asks what they were asked."""
        moving = {g: self._groups[g] for g, request in requests.items() if _moves(request)}
        fresh = {group: np.ones(len(numbers), bool) for group, numbers in moving.items()}
        lost: dict[int, Any] = {}
        if self._restorable:
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
            if isinstance(answer, LostError):  # with all groups of the collector
                return dict.fromkeys(requests, answer)
        asked = {group: request for group, request in requests.items() if group not in lost}
        return lost | self._collectors.ask(asked, actor)

    def _differing(
        self, numbers: range, observations: np.ndarray, returns: np.ndarray
    ) -> np.ndarray:
        """Says where a group did not come back to where it was, `[G]` bool."""
        own = slice(numbers.start, numbers.stop)
        differ: np.ndarray = (observations != self._episodes.observations[own]).any(axis=1)
        return differ | (returns != self._episodes.returns[own])

    def _note_lost(self, numbers: range, fresh: np.ndarray) -> None:
        """Keeps in which environments of a group, `[G]` bool, a fresh episode is to begin."""
        self._lost[numbers] = fresh
        new = [number for number, begins in zip(numbers, fresh, strict=True) if begins]
        if new and self._restorable:
            _log.warning("environments %s do not come back into their episodes", new)


def _moves(request: Request) -> bool:
    return request[0] is EnvironmentGroup.rollout
