"""Hindsight replay of a point that moves along a line by 1 per step.

Observations are (position, achieved goal, desired goal). The achieved goal is the position. The
reward is 0 if the goal is achieved and -1 otherwise. Achieving the goal terminates the episode.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from eagerly.buffers import Hindsight, NStep, OneStep, Transition
from eagerly.state import flatten_state, unflatten_state

GAMMA, FAR = 0.5, 99.0


def outcomes(
    achieved: np.ndarray, desired: np.ndarray, infos: Sequence[Any]
) -> tuple[np.ndarray, np.ndarray]:
    reached = (achieved == desired)[:, 0]
    return reached - 1.0, reached


def hindsight(strategy: str = "future", *, steps: int = 1, **more: Any) -> Hindsight:
    inside = OneStep() if steps == 1 else NStep(steps)
    given: dict[str, Any] = {"outcomes": outcomes, "discount": GAMMA} | more
    columns = {"achieved": slice(1, 2), "desired": slice(2, 3)}
    return Hindsight(inside, strategy=strategy, steps=steps, **columns, **given)


def step(place: int, count: int = 1) -> Transition:
    """Returns one step per environment, from positions `place`, `place + 10` and so on."""
    places = place + 10.0 * np.arange(count)
    before, after = (np.stack([p, p, np.full(count, FAR)], 1) for p in (places, places + 1))
    rewards = np.full(count, -1.0)
    return Transition(before, before[:, :1] / 8, rewards, np.full(count, GAMMA), after)


def played(accumulator: Hindsight, length: int) -> Transition:
    """Plays an episode that is truncated after `length` steps, and returns all transitions."""
    ends = [place == length - 1 for place in range(length)]
    found = [accumulator.accumulate(step(place), np.array([end])) for place, end in enumerate(ends)]
    parts = zip(*(transitions for transitions, _ in found), strict=True)
    return Transition(*(np.concatenate(part) for part in parts))


def test_original_steps_are_returned_immediately() -> None:
    accumulator = hindsight()
    found, ended = accumulator.accumulate(step(0), np.array([False]))
    assert (found.observation.tolist(), ended.tolist()) == ([[0, 0, FAR]], [False])
    assert len(played(hindsight(goals=4), 3).reward) == 3 + 4 * 3


def test_final_relabels_every_step_with_the_last_achieved_goal() -> None:
    found = played(hindsight("final", goals=4), 3)
    relabelled = Transition(*(part[3:] for part in found))
    assert relabelled.observation.tolist() == [[0, 0, 3], [1, 1, 3], [2, 2, 3]]
    assert relabelled.next_observation.tolist() == [[1, 1, 3], [2, 2, 3], [3, 3, 3]]
    assert relabelled.action.tolist() == [[0], [0.125], [0.25]]
    assert relabelled.reward.tolist() == [-1, -1, 0]
    assert relabelled.discount.tolist() == [GAMMA, GAMMA, 0]


@pytest.mark.parametrize("strategy", ["future", "episode"])
def test_goals_are_drawn_uniformly_from_achieved_goals(strategy: str) -> None:
    found = played(hindsight(strategy, goals=3000), 3)
    goals = found.observation[3:, 2].reshape(3, 3000)
    for first, drawn in enumerate(goals):
        possible = np.arange(1, 4)[first if strategy == "future" else 0 :]
        counts = [(drawn == goal).mean() for goal in possible]
        assert sum(counts) == pytest.approx(1)
        np.testing.assert_allclose(counts, 1 / len(possible), atol=0.05)
    np.testing.assert_array_equal(found.observation[3:, 2], found.next_observation[3:, 2])


def test_n_step_returns_are_computed_after_relabeling() -> None:
    found = played(hindsight("final", steps=2), 4)
    relabelled = Transition(*(part[-4:] for part in found))
    assert relabelled.reward.tolist() == [-1.5, -1.5, -1, 0]
    assert relabelled.discount.tolist() == [GAMMA**2, GAMMA**2, 0, 0]
    assert relabelled.next_observation[:, 0].tolist() == [2, 3, 4, 4]


def test_terminations_may_be_numbers() -> None:
    def integers(*given: Any) -> Any:
        reward, reached = outcomes(*given)
        return reward, reached.astype(int)

    found = played(hindsight("final", steps=2), 4)
    again = played(hindsight("final", steps=2, outcomes=integers), 4)
    for part, other in zip(found, again, strict=True):
        np.testing.assert_array_equal(part, other)


def test_returns_stop_at_an_achieved_goal() -> None:
    found = played(hindsight("episode", steps=4, goals=500), 4)
    for before, _, reward, discount, after in zip(
        *(part[4:].tolist() for part in found), strict=True
    ):
        place, goal = before[0], before[2]
        needed, there = goal - place, min(place + 4, 4)
        if needed <= 0:  # the step begins at or beyond the goal, so it is never achieved again
            expected = -sum(GAMMA**k for k in range(int(there - place))), GAMMA ** (there - place)
        else:
            expected = -sum(GAMMA**k for k in range(int(needed) - 1)), 0.0
        assert (reward, discount) == expected
        assert after == [there, there, goal]


def test_outcomes_receive_the_info_of_the_achieving_step() -> None:
    seen = []

    def asked(achieved: np.ndarray, desired: np.ndarray, infos: Sequence[Any]) -> Any:
        seen.extend(zip(achieved[:, 0].tolist(), infos, strict=True))
        return outcomes(achieved, desired, infos)

    accumulator = hindsight("episode", steps=2, outcomes=asked)
    for place in range(3):
        accumulator.accumulate(step(place), np.array([place == 2]), [(f"step {place}",)])
    assert len(seen) > 12
    assert all(info == (f"step {int(achieved) - 1}",) for achieved, info in seen)


def test_environments_have_separate_episodes() -> None:
    accumulator = hindsight("final")
    for place in range(3):
        found, ended = accumulator.accumulate(step(place, 2), np.array([place == 1, place == 2]))
        if place == 1:
            assert found.observation[2:].tolist() == [[0, 0, 2], [1, 1, 2]]
    assert found.observation[2:].tolist() == [[10, 10, 13], [11, 11, 13], [12, 12, 13]]
    assert ended.tolist() == [False, True, False, False, False]


def test_current_episodes_and_the_generator_are_restored() -> None:
    through = hindsight(steps=3)
    played(through, 5)
    for place in range(4):
        through.accumulate(step(place, 1), np.array([False]), [(place, np.arange(2.0), "on")])
    document, arrays = flatten_state(through.state())
    continued = hindsight(steps=3, seed=7)
    with pytest.raises(ValueError, match=r"the state of Hindsight must be .*; got \['ages'\]"):
        continued.restore({"ages": np.zeros(1, np.int64)})
    continued.restore(unflatten_state(document, arrays))
    for each in (through, continued):
        assert each._episodes[0][3][3][0] == 3
    one, other = (
        each.accumulate(step(4), np.array([True]), [(4, np.arange(2.0), "on")])[0]
        for each in (through, continued)
    )
    for part, same in zip(one, other, strict=True):
        np.testing.assert_array_equal(part, same)


def test_on_reset_discards_interrupted_episodes() -> None:
    accumulator = hindsight("final")
    accumulator.accumulate(step(5, 2), np.zeros(2, bool))
    accumulator.on_reset(np.array([True, False]))
    found, _ = accumulator.accumulate(step(0, 2), np.ones(2, bool))
    assert found.observation[2:, 0].tolist() == [0, 15, 10]
    accumulator.on_reset(np.ones(3, bool))
    accumulator.accumulate(step(0, 3), np.zeros(3, bool))
    with pytest.raises(ValueError, match="environments changed from 3 to 1: call on_reset"):
        accumulator.accumulate(step(0), np.zeros(1, bool))
    pending = hindsight("final", steps=3)
    pending.accumulate(step(5), np.zeros(1, bool))
    pending.on_reset(np.ones(1, bool))
    assert played(pending, 3).observation[:, 0].tolist() == [0, 1, 2] * 2


def test_an_unknown_strategy_is_rejected() -> None:
    with pytest.raises(ValueError, match="one of final, future, episode; got 'past'"):
        hindsight("past")


def test_numbers_below_1_are_rejected() -> None:
    for wrong in ({"steps": 0}, {"goals": 0}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be at least 1; got 0"):
            Hindsight(
                OneStep(),
                achieved=slice(1, 2),
                desired=slice(2, 3),
                outcomes=outcomes,
                discount=GAMMA,
                **wrong,
            )


@pytest.mark.parametrize(
    "infos",
    [
        [{"force": np.full(2, k), "on": k > 1} for k in range(4)],
        [{"force": np.zeros(k, np.float32)} for k in range(4)],  # arrays of different lengths
        [{"force": np.array(7), "text": "half a pair: \ud800", "count": 2**70, "far": np.inf}],
        [{"force": np.zeros(2)}, {}, {"force": np.ones((2, 0))}, {}],
        [None] * 4,
    ],
)
def test_infos_of_current_episodes_are_saved_as_arrays(infos: list[Any]) -> None:
    through = hindsight()
    for place, info in enumerate(infos):
        through.accumulate(step(place), np.array([False]), [info])
    document, arrays = flatten_state(through.state())
    assert len(arrays) == 3 + 2  # arrays hold the infos, as JSON has a size limit
    continued = hindsight()
    continued.restore(unflatten_state(json.loads(json.dumps(document)), arrays))
    kept = [each[3] for each in continued._episodes[0]]
    assert repr(kept) == repr(infos)
