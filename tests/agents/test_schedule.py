"""What happens in which update, by arithmetic."""

from __future__ import annotations

import pytest
import tensorflow as tf

from eagerly.agents.schedule import Schedule


def test_without_rhythms_all_updates_are_alike() -> None:
    schedule = Schedule()
    assert schedule.period == 1
    assert schedule.phases == (frozenset(),)
    assert list(schedule.runs(range(1, 6))) == [(frozenset(), 5)]


def test_phases_repeat_after_the_least_common_multiple() -> None:
    schedule = Schedule((2, 3))
    assert schedule.period == 6
    due = [set(schedule.due(update)) for update in range(1, 7)]
    assert due == [set(), {2}, {3}, {2}, set(), {2, 3}]
    assert all(schedule.due(update) == schedule.due(update + 6) for update in range(1, 20))
    # In the order of the updates in which they are met for the first time.
    assert schedule.phases == (frozenset(), {2}, {3}, {2, 3})


@pytest.mark.parametrize(
    ("rhythms", "updates", "runs"),
    [
        ((4,), range(1, 5), [(set(), 3), ({4}, 1)]),
        ((4,), range(3, 8), [(set(), 1), ({4}, 1), (set(), 3)]),
        ((1,), range(1, 8), [({1}, 7)]),
        ((2, 4), range(1, 5), [(set(), 1), ({2}, 1), (set(), 1), ({2, 4}, 1)]),
    ],
)
def test_runs_are_updates_in_a_row_in_which_the_same_is_due(
    rhythms: tuple[int, ...], updates: range, runs: list[tuple[set[int], int]]
) -> None:
    assert list(Schedule(rhythms).runs(updates)) == runs


def test_a_phase_says_what_happens_as_a_python_truth_value() -> None:
    schedule = Schedule((2, 3))
    number = tf.constant(4, tf.int64)
    phase = schedule.phase(schedule.due(4), number)
    assert phase.update is number
    assert phase.every(1) is True
    assert phase.every(2) is True
    assert phase.every(3) is False


def test_what_was_not_declared_is_refused_and_every_update_needs_no_declaration() -> None:
    phase = Schedule((2,)).phase(frozenset(), tf.constant(1, tf.int64))
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
