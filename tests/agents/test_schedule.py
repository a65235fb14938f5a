"""What happens in which update, by arithmetic."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from eagerly.agents.schedule import Phase, Schedule


def test_without_rhythms_all_updates_are_alike() -> None:
    schedule = Schedule()
    assert schedule.period == 1
    assert schedule.phases == (frozenset(),)
    assert schedule.runs() == [(frozenset(), 1)]


def test_phases_repeat_after_the_least_common_multiple() -> None:
    schedule = Schedule((2, 3))
    assert schedule.period == 6
    due = [set(schedule.due(update)) for update in range(1, 7)]
    assert due == [set(), {2}, {3}, {2}, set(), {2, 3}]
    assert all(schedule.due(update) == schedule.due(update + 6) for update in range(1, 20))
    # In the order of the updates in which they are met for the first time.
    assert schedule.phases == (frozenset(), {2}, {3}, {2, 3})


@pytest.mark.parametrize(
    ("rhythms", "runs"),
    [
        ((4,), [(set(), 3), ({4}, 1)]),
        ((1,), [({1}, 1)]),
        ((2, 4), [(set(), 1), ({2}, 1), (set(), 1), ({2, 4}, 1)]),
    ],
)
def test_runs_are_updates_in_a_row_in_which_the_same_is_due(
    rhythms: tuple[int, ...], runs: list[tuple[set[int], int]]
) -> None:
    assert Schedule(rhythms).runs() == runs


@pytest.mark.parametrize(
    ("made", "updates", "parts"),
    [
        (0, 9, [(0, 9, None)]),
        (6, 7, [(6, 6, None), (12, 1, 0)]),
        (7, 7, [(7, 1, 0), (8, 1, 1), (9, 3, None), (12, 1, 0), (13, 1, 0)]),
        (8, 1, [(8, 1, 1)]),
        (4, 2, [(4, 1, 0), (5, 1, 1)]),
    ],
)
def test_whole_periods_stay_together_and_the_updates_around_them_are_single(
    made: int, updates: int, parts: list[tuple[Any, ...]]
) -> None:
    schedule = Schedule((3,))
    assert list(schedule.parts(made, updates, one_by_one=False)) == parts
    singles = [(number, 1, int(number % 3 == 2)) for number in range(made, made + updates)]
    assert list(schedule.parts(made, updates, one_by_one=True)) == singles


def test_a_phase_says_what_happens_as_a_python_truth_value() -> None:
    schedule = Schedule((2, 3))
    number = tf.constant(4, tf.int64)
    phase = Phase(number, schedule.due(4), schedule.rhythms)
    assert phase.update is number
    assert phase.every(1) is True
    assert phase.every(2) is True
    assert phase.every(3) is False


def test_what_was_not_declared_is_refused_and_every_update_needs_no_declaration() -> None:
    phase = Phase(tf.constant(1, tf.int64), frozenset(), (2,))
    with pytest.raises(ValueError, match=r"every 3 updates: add 3 to .* rhythms, \(2,\)"):
        phase.every(3)
    assert phase.every(1)


@pytest.mark.parametrize(
    ("rhythms", "message"),
    [
        ((0,), r"rhythms must be at least 1; got \(0,\)"),
        ((2, -1), r"rhythms must be at least 1; got \(2, -1\)"),
        ((31, 37), r"\(31, 37\) updates repeat together only every 1147: .* between calls"),
        ((1, 2, 1001), r"repeat together only every 2002"),
    ],
)
def test_rhythms_that_cannot_be_compiled_are_refused(
    rhythms: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Schedule(rhythms)


@pytest.mark.parametrize("rhythms", [(1000,), (10, 100), (2, 4, 8), (3, 5), (2, 2)])
def test_rhythms_that_meet_often_enough_are_not(rhythms: tuple[int, ...]) -> None:
    assert Schedule(rhythms).period % max(rhythms) == 0
