"""Recovery from lost collectors. A fake returns scripted answers in place of the collectors."""

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
    """Replaces collectors: returns scripted answers in order and records the requests."""

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
    """Returns the group and the episode number of each request to begin an episode."""
    return [
        (at, given[0][0]) for at, (name, given) in scripted.asked if name is EnvironmentGroup.begin
    ]


def log_of(observations: np.ndarray, *, keeps_actions: bool = True) -> EpisodeLog:
    """Returns an episode log of environments with the given current observations."""
    log = EpisodeLog(len(observations), keeps_actions=keeps_actions)
    log.observations = observations
    return log


def test_only_environments_not_restored_by_the_last_attempt_count_as_lost() -> None:
    elsewhere, returns = np.zeros((1, 2), np.float32), np.zeros(1)
    scripted = Scripted(
        LostError(),
        (elsewhere, returns),  # the episode is not restored
        (elsewhere, returns),  # a fresh episode begins
        LostError(),
        (BEFORE, returns),  # the episode is restored
        DONE,
    )
    recovery = Recovery(scripted, [range(1)], log_of(BEFORE))
    assert recovery.ask({0: STEP}) == {0: DONE}
    assert begun(scripted) == [(0, 0), (0, 1), (0, 0)]
    assert not recovery.taken_lost().any()


def test_a_collector_lost_while_fresh_episodes_begin_loses_all_its_groups() -> None:
    elsewhere, here, returns = np.zeros((1, 2), np.float32), np.ones((1, 2)), np.zeros(1)
    scripted = Scripted(
        *(LostError(), LostError()),
        *((elsewhere, returns), (here, returns)),  # the first group is not restored
        LostError(),  # raised while a fresh episode begins: the other group is lost, too
        *((here, returns), (here, returns)),
        *(DONE, DONE),
    )
    log = log_of(np.ones((2, 2), np.float32))
    recovery = Recovery(scripted, [range(1), range(1, 2)], log)
    assert recovery.ask({0: STEP, 1: STEP}) == {0: DONE, 1: DONE}
    assert begun(scripted) == [(0, 0), (1, 0), (0, 1), (0, 0), (1, 0)]
    assert not recovery.taken_lost().any()


def test_without_replay_a_group_begins_its_next_episodes_at_once() -> None:
    scripted = Scripted(LostError(), (BEFORE, np.zeros(1)), DONE)
    recovery = Recovery(scripted, [range(1)], log_of(BEFORE, keeps_actions=False))
    assert recovery.ask({0: STEP}) == {0: DONE}
    assert begun(scripted) == [(0, 1)]
    assert recovery.taken_lost().tolist() == [True]


def test_a_collector_lost_at_five_attempts_is_reported() -> None:
    scripted = Scripted(*[LostError("collector 0 died")] * 5)
    recovery = Recovery(scripted, [range(1)], log_of(BEFORE))
    with pytest.raises(RunError, match="collector 0 died: giving up after 5 attempts"):
        recovery.ask({0: STEP})
    assert begun(scripted) == [(0, 0)] * 4


def test_a_restored_episode_has_its_arguments_and_a_fresh_one_the_next_ones() -> None:
    log = log_of(BEFORE)
    log.kwargs, log.next_kwargs = ['{"difficulty": 1}'], '{"difficulty": 2}'
    scripted = Scripted(
        LostError(), (np.zeros((1, 2), np.float32), np.zeros(1)), (BEFORE, np.zeros(1)), DONE
    )
    Recovery(scripted, [range(1)], log).ask({0: STEP})
    begins = [given for _, (name, given) in scripted.asked if name is EnvironmentGroup.begin]
    assert [given[3] for given in begins] == [['{"difficulty": 1}'], ['{"difficulty": 2}']]
