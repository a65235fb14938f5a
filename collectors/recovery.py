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

    def hurry(self) -> None:
        """Has rollouts end early where they can, because nobody waits for them."""

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
            if self.is_closing or max(tries.values()) == _TRIES:
                raise RunError(f"{why}, as it did {_TRIES} times in a row")
            _log.warning("%s; it is started again, and its episodes are repeated", why)
            again = {group: wanted[group] for group in lost}
            answers |= self._ask_again(again, observations, policy)
        return [answers[group] for group in wanted]

    def _ask_again(
        self, orders: dict[int, Order], observations: np.ndarray, policy: RowPolicy | None
    ) -> dict[int, Any]:
        """Brings groups back into their episodes, and asks what they were asked."""
        moving = [group for group, order in orders.items() if isinstance(order, Act | Step)]
        begins = {group: self._episodes.begin(self._groups[group]) for group in moving}
        begun = self._collectors.ask(begins)
        lost = {group: each for group, each in begun.items() if isinstance(each, LostError)}
        for group in begun.keys() - lost.keys():
            own, order = self._groups[group], orders[group]
            fresh = self._differing(own, observations, *begun[group])
            self._lost[own] = fresh
            if fresh.any():
                found = self._begin_afresh(group, fresh)
                if isinstance(found, LostError):
                    lost[group] = found
                if isinstance(order, Act):
                    orders[group] = replace(order, fresh=fresh)
        asked = {group: order for group, order in orders.items() if group not in lost}
        return lost | self._collectors.ask(asked, policy)

    def _differing(
        self, numbers: range, before: np.ndarray, observations: np.ndarray, returns: np.ndarray
    ) -> np.ndarray:
        """Says where a group did not come back to where it was, `[G]` bool."""
        own = slice(numbers.start, numbers.stop)
        if not self._restorable:
            return np.ones(len(numbers), bool)
        differ: np.ndarray = (observations != before[own]).any(axis=1)
        return differ | (returns != self._episodes.returns[own])

    def _begin_afresh(self, group: int, fresh: np.ndarray) -> Any:
        """Begins the next episode where `[G]` bool says so, and repeats the others once more."""
        numbers = self._groups[group]
        new = [number for number, begins in zip(numbers, fresh, strict=True) if begins]
        _log.warning("environments %s do not come back into their episodes: fresh ones begin", new)
        return self._collectors.ask({group: self._episodes.begin(numbers, fresh)})[group]
