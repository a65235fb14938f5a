"""What is done again where a collector is lost, with collectors that follow a script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from eagerly.collectors.episodes import EpisodeLog
from eagerly.collectors.host import Begin, Order, Step
from eagerly.collectors.recovery import Recovery
from eagerly.environments.workers import LostError
from eagerly.errors import RunError

BEFORE = np.ones((1, 2), np.float32)
DONE = "done"


class Scripted:
    """Answers groups one after the other, and keeps what was asked."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[int, Order]] = []

    def equip(self, acting: Mapping[int, Any]) -> None: ...

    def ask(self, orders: Mapping[int, Order], policy: Any = None) -> dict[int, Any]:
        self.asked += [(group, order) for group, order in orders.items()]
        return {group: self._answers.pop(0) for group in orders}

    def hurry(self) -> None: ...

    def close(self) -> None: ...


def begun(scripted: Scripted) -> list[tuple[int, int]]:
    """Returns group and episode of every order to begin one."""
    return [(at, order.episodes[0]) for at, order in scripted.asked if isinstance(order, Begin)]


def test_only_what_the_last_try_did_not_bring_back_counts_as_lost() -> None:
    elsewhere, returns = np.zeros((1, 2), np.float32), np.zeros(1)
    scripted = Scripted(
        LostError(),
        (elsewhere, returns),  # it did not come back
        (elsewhere, returns),  # a fresh episode
        LostError(),
        (BEFORE, returns),  # it did
        DONE,
    )
    recovery = Recovery(scripted, [range(1)], EpisodeLog(1, keeps_actions=True), restorable=True)
    assert recovery.ask([Step(np.zeros((1, 1)))], BEFORE) == [DONE]
    assert begun(scripted) == [(0, 0), (0, 1), (0, 0)]
    assert not recovery.taken_lost().any()


def test_a_collector_that_is_lost_as_fresh_episodes_begin_is_lost_with_all_its_groups() -> None:
    elsewhere, here, returns = np.zeros((1, 2), np.float32), np.ones((1, 2)), np.zeros(1)
    scripted = Scripted(
        *(LostError(), LostError()),
        *((elsewhere, returns), (here, returns)),  # the first group did not come back
        LostError(),  # as it begins afresh: the other one is gone, too
        *((here, returns), (here, returns)),
        *(DONE, DONE),
    )
    log = EpisodeLog(2, keeps_actions=True)
    recovery = Recovery(scripted, [range(1), range(1, 2)], log, restorable=True)
    still = Step(np.zeros((1, 1)))
    assert recovery.ask([still, still], np.ones((2, 2), np.float32)) == [DONE, DONE]
    assert begun(scripted) == [(0, 0), (1, 0), (0, 1), (0, 0), (1, 0)]
    assert not recovery.taken_lost().any()


def test_without_repeating_a_group_begins_its_next_episodes_at_once() -> None:
    scripted = Scripted(LostError(), (BEFORE, np.zeros(1)), DONE)
    recovery = Recovery(scripted, [range(1)], EpisodeLog(1, keeps_actions=False), restorable=False)
    assert recovery.ask([Step(np.zeros((1, 1)))], BEFORE) == [DONE]
    assert begun(scripted) == [(0, 1)]
    assert recovery.taken_lost().tolist() == [True]


def test_a_collector_that_is_lost_at_five_tries_is_given_up() -> None:
    scripted = Scripted(*[LostError("collector 0 has died")] * 5)
    recovery = Recovery(scripted, [range(1)], EpisodeLog(1, keeps_actions=True), restorable=True)
    with pytest.raises(RunError, match="collector 0 has died, as it did 5 times in a row"):
        recovery.ask([Step(np.zeros((1, 1)))], BEFORE)
    assert begun(scripted) == [(0, 0)] * 4
