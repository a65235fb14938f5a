"""n-step returns, compared with hand calculations."""

from __future__ import annotations

import numpy as np
import pytest

from eagerly.buffers import NStep, Transition
from eagerly.state import flatten_state, unflatten_state

GAMMA = 0.5


def step(place: float, reward: float, *, terminated: bool = False, count: int = 1) -> Transition:
    """Returns one step per environment. Environment n moves from `place + 100 n` one place on."""
    places = place + 100.0 * np.arange(count)[:, np.newaxis]
    discount = 0.0 if terminated else GAMMA
    rewards = np.full(count, reward)
    return Transition(places, -places, rewards, np.full(count, discount), places + 1)


def rows(found: Transition) -> list[tuple[float, ...]]:
    """Returns (observation, action, reward, discount, next observation) of each transition."""
    parts = (np.asarray(part).reshape(len(found.reward)) for part in found)
    return [tuple(map(float, row)) for row in zip(*parts, strict=True)]


def played(n_step: NStep, rewards: list[float], end: str) -> list[tuple[float, ...]]:
    """Plays an episode that starts at place 0, and returns its transitions in order."""
    found = []
    for place, reward in enumerate(rewards):
        last = place == len(rewards) - 1 and end != ""
        given = step(place, reward, terminated=last and end == "terminated")
        found += rows(n_step.accumulate(given, np.array([last]))[0])
    return found


def test_a_terminated_episode_does_not_bootstrap() -> None:
    assert played(NStep(3), [1, 2, 4, 8], "terminated") == [
        (0, 0, 1 + 1 + 1, 0.125, 3),
        (1, -1, 2 + 2 + 2, 0, 4),
        (2, -2, 4 + 4, 0, 4),
        (3, -3, 8, 0, 4),
    ]


def test_a_truncated_episode_bootstraps_from_its_true_last_observation() -> None:
    assert played(NStep(3), [1, 2, 4, 8], "truncated") == [
        (0, 0, 3, 0.125, 3),
        (1, -1, 6, 0.125, 4),
        (2, -2, 8, 0.25, 4),
        (3, -3, 8, 0.5, 4),
    ]


@pytest.mark.parametrize(("end", "discount"), [("terminated", 0.0), ("truncated", 0.25)])
def test_an_episode_shorter_than_n_has_shorter_returns(end: str, discount: float) -> None:
    found = played(NStep(5), [1, 2], end)
    assert found == [(0, 0, 2, discount, 2), (1, -1, 2, 2 * discount, 2)]


def test_transitions_are_pending_until_n_steps_are_complete() -> None:
    assert played(NStep(3), [1, 2, 4, 8], "") == [(0, 0, 3, 0.125, 3), (1, -1, 6, 0.125, 4)]


def test_episodes_do_not_affect_each_other() -> None:
    n_step = NStep(3)
    first = played(n_step, [1, 2], "truncated")
    assert played(n_step, [1, 2], "truncated") == first
    assert played(n_step, [1, 2, 4, 8], "terminated") == played(
        NStep(3), [1, 2, 4, 8], "terminated"
    )


def test_with_n_of_1_transitions_equal_the_steps() -> None:
    assert played(NStep(1), [1, 2], "terminated") == [(0, 0, 1, 0.5, 1), (1, -1, 2, 0, 2)]


def test_environments_have_separate_episodes() -> None:
    n_step, found, ends = NStep(2), [], []
    for place, reward in enumerate([1.0, 2.0, 4.0]):
        ended = np.array([place == 1, False])
        transitions, over = n_step.accumulate(step(place, reward, count=2), ended)
        found, ends = found + rows(transitions), ends + over.tolist()
    assert found == [
        (0, 0, 2, 0.25, 2),
        (100, -100, 2, 0.25, 102),
        (1, -1, 2, 0.5, 2),
        (101, -101, 4, 0.25, 103),
    ]
    assert ends == [True, False, True, False]


def test_input_arrays_may_be_reused() -> None:
    n_step, given = NStep(2), step(0, 1)
    n_step.accumulate(given, np.array([False]))
    for part in given:
        part[...] = 7
    assert rows(n_step.accumulate(step(1, 2), np.array([False]))[0]) == [(0, 0, 2, 0.25, 2)]


def restored(n_step: NStep) -> NStep:
    """Returns a new accumulator with the state of `n_step`."""
    document, arrays = flatten_state(n_step.state())
    found = NStep(3)
    found.restore(unflatten_state(document, arrays))
    return found


def test_pending_steps_can_be_restored_after_every_step() -> None:
    through = continued = NStep(3)
    for place in range(9):
        ended = np.array([place == 3, place in (5, 6)])
        given = step(place, 2.0**place, count=2)
        found = [rows(each.accumulate(given, ended)[0]) for each in (through, continued)]
        assert found[0] == found[1]
        continued = restored(continued)
        assert repr(through.state()) == repr(continued.state())


def test_the_state_contains_only_pending_steps_oldest_first() -> None:
    n_step = NStep(3)
    for place, ended in enumerate([(1, 1), (0, 1), (0, 0)]):
        n_step.accumulate(step(place, 1, count=2), np.array(ended, bool))
    # The steps from places 1 and 2 of the first environment and 102 of the second are pending.
    state = n_step.state()
    assert state["ages"].tolist() == [2, 1]
    assert state["observation"].tolist() == [[1], [2], [102]]
    assert state["reward"].tolist() == [1.5, 1, 1]
    assert state["discount"].tolist() == [0.25, 0.5, 0.5]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("ages", np.array([3]), r"ages must be .* in \[0, 2\] for n = 3; got int64 \(1,\) \[3\]"),
        ("ages", np.array([1.0]), r"ages must be int64 of shape \[N\] .*; got float64"),
        (
            "reward",
            np.ones(2, np.float32),
            r"reward .* must be float64 of shape \[2\]; got float32",
        ),
        (
            "observation",
            np.zeros((2, 1)),
            r"observation .* float32 of shape \[2, ...\]; got float64",
        ),
        (
            "action",
            np.zeros((1, 1), np.float32),
            r"action .* of shape \[2, ...\]; got float32 \(1, 1",
        ),
    ],
)
def test_an_invalid_state_is_rejected(name: str, value: np.ndarray, message: str) -> None:
    n_step = NStep(3)
    played(n_step, [1, 2], "")
    with pytest.raises(ValueError, match=message):
        NStep(3).restore(n_step.state() | {name: value})


def test_the_state_of_another_accumulator_is_rejected_and_changes_nothing() -> None:
    n_step = NStep(3)
    played(n_step, [1, 2], "")
    before = n_step.state()
    with pytest.raises(ValueError, match=r"the state of NStep must be .*'ages'.*; got \['kept'\]"):
        n_step.restore({"kept": []})
    np.testing.assert_equal(n_step.state(), before)


def test_finished_episodes_leave_no_state() -> None:
    n_step = NStep(3)
    played(n_step, [1, 2, 4], "terminated")
    assert n_step.state() == {}
    n_step.restore({})
    assert played(n_step, [1, 2], "truncated") == played(NStep(3), [1, 2], "truncated")


def test_on_reset_discards_interrupted_episodes() -> None:
    n_step = NStep(3)
    n_step.accumulate(step(0, 1, count=2), np.zeros(2, bool))
    n_step.on_reset(np.array([True, False]))
    transitions, _ = n_step.accumulate(step(1, 2, count=2), np.ones(2, bool))
    assert rows(transitions) == [
        (100, -100, 2, 0.25, 102),
        (1, -1, 2, 0.5, 2),
        (101, -101, 2, 0.5, 102),
    ]


def test_a_changed_number_of_environments_or_steps_is_rejected() -> None:
    n_step = NStep(3)
    n_step.accumulate(step(0, 1), np.zeros(1, bool))
    with pytest.raises(ValueError, match="environments changed from 1 to 2: call on_reset"):
        n_step.accumulate(step(0, 1, count=2), np.zeros(2, bool))
    with pytest.raises(ValueError, match=r"began must have shape \[1\]"):
        n_step.on_reset(np.array([True, False]))
    n_step.accumulate(step(1, 1), np.zeros(1, bool))
    with pytest.raises(ValueError, match=r"in \[0, 1\] for n = 2; got"):
        NStep(2).restore(n_step.state())
    n_step.on_reset(np.array([True, True]))
    assert n_step.accumulate(step(0, 1, count=2), np.zeros(2, bool))[1].tolist() == []
    with pytest.raises(ValueError, match="at least 1; got 0"):
        NStep(0)
