"""Asking groups of environments, and bringing back those whose collector was lost."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from eagerly.collectors.episodes import EpisodeLog
from eagerly.collectors.host import Act, ActsByItself, Order, Step
from eagerly.environments.workers import LostError
from eagerly.errors import RunError
from eagerly.policies.numpy_actor import RowPolicy

_log = logging.getLogger(__name__)
_TRIES = 5  # after which a collector that was lost at each of them is given up


class Collectors(Protocol):
    """Where groups of environments are."""

    def equip(self, acting: Mapping[int, ActsByItself]) -> None:
        """Takes what acts in each group."""

    def ask(self, orders: Mapping[int, Order], policy: RowPolicy | None = None) -> dict[int, Any]:
        """Does what is asked of groups, and waits for it.

        Args:
            orders: By the number of the group.
            policy: What groups act with from now on; None: as before.

        Returns:
            The answer of each group, or a `LostError` where its collector was lost.

        Raises:
            RunError: If an environment fails, in what way it does.
        """

    def hurry(self) -> float | None:
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
        collectors: Collectors,
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
        self, orders: Sequence[Order], observations: np.ndarray, policy: RowPolicy | None = None
    ) -> list[Any]:
        """Asks every group; those that are lost are brought back and asked again.

        Args:
            orders: What is asked of each.
            observations: `[N, O]`, the current ones, before it is done.
            policy: What they act with.

        Returns:
            Their answers.

        Raises:
            RunError: If an environment fails, or a collector is lost at every try.
        """
        wanted = dict(enumerate(orders))
        answers = self._collectors.ask(wanted, policy)
        tries: Counter[int] = Counter()
        while lost := {g: each for g, each in answers.items() if isinstance(each, LostError)}:
            tries.update(lost.keys())
            why = "; ".join(sorted({str(error) for error in lost.values()}))
            if self.is_closing:
                raise RunError(why)
            if max(tries.values()) == _TRIES:
                raise RunError(f"{why}, as it did {_TRIES} times in a row")
            again = {group: wanted[group] for group in lost}
            repeats = self._restorable and any(map(_moves, again.values()))
            then = ", and its episodes are repeated" if repeats else ""
            _log.warning("%s; it is started again%s", why, then)
            answers |= self._ask_again(again, observations, policy)
        return [answers[group] for group in wanted]

    def _ask_again(
        self, orders: dict[int, Order], observations: np.ndarray, policy: RowPolicy | None
    ) -> dict[int, Any]:
        """Brings groups back into their episodes, and asks what they were asked."""
        moving = {group: self._groups[group] for group, order in orders.items() if _moves(order)}
        fresh = {group: np.ones(len(numbers), bool) for group, numbers in moving.items()}
        lost: dict[int, Any] = {}
        if self._restorable:
            begins = {group: self._episodes.begin(numbers) for group, numbers in moving.items()}
            begun = self._collectors.ask(begins)
            lost = {group: each for group, each in begun.items() if isinstance(each, LostError)}
            fresh = {
                group: self._differing(self._groups[group], observations, *begun[group])
                for group in begun.keys() - lost.keys()
            }
        begins = {}
        for group, where in fresh.items():
            self._note_lost(self._groups[group], where)
            if where.any():
                begins[group] = self._episodes.begin(self._groups[group], where)
                order = orders[group]
                orders[group] = replace(order, fresh=where) if isinstance(order, Act) else order
        for answer in self._collectors.ask(begins).values():
            if isinstance(answer, LostError):  # with all groups of the collector
                return dict.fromkeys(orders, answer)
        asked = {group: order for group, order in orders.items() if group not in lost}
        return lost | self._collectors.ask(asked, policy)

    def _differing(
        self, numbers: range, before: np.ndarray, observations: np.ndarray, returns: np.ndarray
    ) -> np.ndarray:
        """Says where a group did not come back to where it was, `[G]` bool."""
        own = slice(numbers.start, numbers.stop)
        differ: np.ndarray = (observations != before[own]).any(axis=1)
        return differ | (returns != self._episodes.returns[own])

    def _note_lost(self, numbers: range, fresh: np.ndarray) -> None:
        """Keeps in which environments of a group, `[G]` bool, a fresh episode is to begin."""
        self._lost[numbers] = fresh
        new = [number for number, begins in zip(numbers, fresh, strict=True) if begins]
        if new and self._restorable:
            _log.warning("environments %s do not come back into their episodes", new)


def _moves(order: Order) -> bool:
    return isinstance(order, Act | Step)
