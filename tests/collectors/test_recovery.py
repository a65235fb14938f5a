"""What is done again where a collector is lost, with collectors that follow a script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from eagerly.collectors.episodes import EpisodeLog
from eagerly.collectors.host import Begin, Order, Step
from eagerly.collectors.recovery import Recovery
from eagerly.environments.workers import LostError

BEFORE = np.ones((1, 2), np.float32)
DONE = "done"


class Scripted:
    """Answers the only group one after the other, and keeps what was asked."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.asked: list[Order] = []

    def equip(self, acting: Mapping[int, Any]) -> None: ...

    def ask(self, orders: Mapping[int, Order], policy: Any = None) -> dict[int, Any]:
        self.asked += orders.values()
        return {group: self._answers.pop(0) for group in orders}

    def hurry(self) -> None: ...

    def close(self) -> None: ...


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
    begun = [order.episodes for order in scripted.asked if isinstance(order, Begin)]
    assert begun == [[0], [1], [0]]
    assert not recovery.taken_lost().any()
