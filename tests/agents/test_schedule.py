"""Which intervals end at an update, and how a call's updates are divided into periods."""

from __future__ import annotations

import pytest
import tensorflow as tf

from eagerly.agents.schedule import Phase, Runs, due_in, parts_of


def test_due_intervals_repeat_after_the_least_common_multiple() -> None:
    due = [due_in(update, (2, 3)) for update in range(1, 7)]
    assert due == [(), (2,), (3,), (2,), (), (2, 3)]
    assert all(due_in(update, (2, 3)) == due_in(update + 6, (2, 3)) for update in range(1, 20))
    assert due_in(5, ()) == ()


NONE, LAST = (((), 1),), (((3,), 1),)
PERIOD = (((), 2), ((3,), 1))


@pytest.mark.parametrize(
    ("made", "updates", "parts"),
    [
        (0, 9, [(PERIOD, 3, 3)]),
        (6, 7, [(PERIOD, 3, 2), (NONE, 1, 1)]),
        (7, 7, [(NONE, 1, 1), (LAST, 1, 1), (PERIOD, 3, 1), (NONE, 1, 1), (NONE, 1, 1)]),
        (8, 1, [(LAST, 1, 1)]),
        (4, 2, [(NONE, 1, 1), (LAST, 1, 1)]),
    ],
)
def test_whole_periods_stay_together_and_other_updates_are_single(
    made: int, updates: int, parts: list[tuple[Runs, int, int]]
) -> None:
    assert list(parts_of(made, updates, (3,))) == parts
    singles = [(((due_in(n, (3,)), 1),), 1, 1) for n in range(made + 1, made + updates + 1)]
    assert list(parts_of(made, updates, (3,), most_runs=0)) == singles


@pytest.mark.parametrize(
    ("intervals", "parts"),
    [
        ((), [((((), 1),), 1, 90)]),
        ((1,), [((((1,), 1),), 1, 90)]),
        (
            (2, 4),
            [
                ((((), 1), ((2,), 1), ((), 1), ((2, 4), 1)), 4, 22),
                (NONE, 1, 1),
                ((((2,), 1),), 1, 1),
            ],
        ),
        ((45,), [((((), 44), ((45,), 1)), 45, 2)]),
        ((1000, 7), [(((due_in(n, (7,)), 1),), 1, 1) for n in range(1, 91)]),
    ],
)
def test_runs_are_consecutive_updates_with_the_same_due_intervals(
    intervals: tuple[int, ...], parts: list[tuple[Runs, int, int]]
) -> None:
    assert list(parts_of(0, 90, intervals)) == parts


def test_periods_with_too_many_runs_are_divided_into_single_updates() -> None:
    parts = list(parts_of(0, 1000, (31, 32)))
    assert {part[1:] for part in parts} == {(1, 1)}
    assert len(parts) == 1000


def test_a_phase_returns_python_booleans() -> None:
    number = tf.constant(4, tf.int64)
    phase = Phase(number, due_in(4, (2, 3)), (2, 3))
    assert phase.update is number
    assert phase.is_multiple_of(1) is True
    assert phase.is_multiple_of(2) is True
    assert phase.is_multiple_of(3) is False


def test_undeclared_intervals_are_rejected_except_1() -> None:
    phase = Phase(tf.constant(1, tf.int64), (), (2,))
    with pytest.raises(ValueError, match=r"requires 3 in .* `intervals`, got \(2,\): add 3"):
        phase.is_multiple_of(3)
    assert phase.is_multiple_of(1)
