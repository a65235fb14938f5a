"""What is done again where a collector is lost, with collectors that follow a script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from eagerly.environments.group import EnvironmentGroup
from eagerly.environments.worker_process import LostError
from eagerly.errors import RunError
from eagerly.workers.episode_log import EpisodeLog
from eagerly.workers.recovery import Recovery
from eagerly.workers.worker import Request

BEFORE = np.ones((1, 2), np.float32)
STEP = EnvironmentGroup.rollout, (1, 0, np.zeros((1, 1)))
DONE = "done"


class Scripted:
    """Answers groups one after the other, and keeps what was asked."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[int, Request]] = []

    def set_policies(self, acting: Mapping[int, Any]) -> None: ...

    def ask(self, requests: Mapping[int, Request], actor: Any = None) -> dict[int, Any]:
        self.asked += list(requests.items())
        return {group: self._answers.pop(0) for group in requests}

    def interrupt(self) -> None: ...

    def close(self) -> None: ...


def begun(scripted: Scripted) -> list[tuple[int, int]]:
    """Returns group and episode of every request to begin one."""
    return [
        (at, given[0][0]) for at, (name, given) in scripted.asked if name is EnvironmentGroup.begin
    ]


def log_of(observations: np.ndarray, *, keeps_actions: bool = True) -> EpisodeLog:
    """Returns a log of environments that are where these observations were made."""
    log = EpisodeLog(len(observations), keeps_actions=keeps_actions)
    log.observations = observations
    return log


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
    recovery = Recovery(scripted, [range(1)], log_of(BEFORE), restorable=True)
    assert recovery.ask({0: STEP}) == {0: DONE}
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
    log = log_of(np.ones((2, 2), np.float32))
    recovery = Recovery(scripted, [range(1), range(1, 2)], log, restorable=True)
    assert recovery.ask({0: STEP, 1: STEP}) == {0: DONE, 1: DONE}
    assert begun(scripted) == [(0, 0), (1, 0), (0, 1), (0, 0), (1, 0)]
    assert not recovery.taken_lost().any()


def test_without_repeating_a_group_begins_its_next_episodes_at_once() -> None:
    scripted = Scripted(LostError(), (BEFORE, np.zeros(1)), DONE)
    recovery = Recovery(scripted, [range(1)], log_of(BEFORE, keeps_actions=False), restorable=False)
    assert recovery.ask({0: STEP}) == {0: DONE}
    assert begun(scripted) == [(0, 1)]
    assert recovery.taken_lost().tolist() == [True]


def test_a_collector_that_is_lost_at_five_tries_is_given_up() -> None:
    scripted = Scripted(*[LostError("collector 0 has died")] * 5)
    recovery = Recovery(scripted, [range(1)], log_of(BEFORE), restorable=True)
    with pytest.raises(RunError, match="collector 0 has died, as it did 5 times in a row"):
        recovery.ask({0: STEP})
    assert begun(scripted) == [(0, 0)] * 4
