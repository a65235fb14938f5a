"""Statistics over seeds, by numbers that a person can check."""

from __future__ import annotations

import numpy as np
import pytest

from eagerly.curves.statistics import (
    difference,
    interquartile_mean,
    over_runs,
    probability_of_improvement,
    relative,
)


def test_the_interquartile_mean_of_five_is_that_of_the_middle_three() -> None:
    assert interquartile_mean(np.array([-1e6, 1.0, 2.0, 6.0, 1e6])) == 3.0


def test_a_curve_is_estimated_point_by_point() -> None:
    curves = np.array([[0.0, 10.0, 5.0], [2.0, 20.0, 5.0], [4.0, 30.0, 5.0]])
    found = over_runs(curves, np.mean)
    np.testing.assert_allclose(found.value, [2.0, 20.0, 5.0])
    # The least and the greatest mean of three draws: one run three times (1 in 27 each).
    np.testing.assert_allclose(found.low, [0.0, 0.0, 5.0], atol=12.0)
    assert (found.low <= found.value).all()
    assert (found.value <= found.high).all()
    assert found.low[2] == found.high[2] == 5.0


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    random = np.random.default_rng(0)
    held = 0
    for _ in range(60):
        found = over_runs(random.normal(7.0, 2.0, 20), np.mean)
        held += found.low <= 7.0 <= found.high
    assert 50 <= held <= 60  # percentile intervals of 20 values hold in about 93 of 100


def test_one_run_has_no_interval() -> None:
    found = over_runs(np.array([3.0]))
    assert found.value == 3.0
    assert str(found) == "3"
    assert np.isnan(found.low)
    assert np.isnan(found.high)


def test_a_difference_that_is_clear_excludes_0() -> None:
    low, high = np.array([1.0, 2.0, 3.0, 4.0, 5.0]), np.array([101.0, 102.0, 103.0, 104.0, 105.0])
    found = difference(high, low)
    assert found.value == 100.0
    assert found.low > 95.0
    assert difference(low, low).low < 0.0 < difference(low, low).high


def test_the_probability_of_improvement_counts_pairs() -> None:
    first, second = [np.array([1.0, 3.0])], [np.array([0.0, 2.0])]
    assert probability_of_improvement(first, second).value == 0.75  # 1 > 0, 3 > 0, 3 > 2
    same = [np.array([1.0, 1.0])]
    assert probability_of_improvement(same, same).value == 0.5
    with pytest.raises(ValueError, match="same tasks, got 1 and 2"):
        probability_of_improvement(first, [*second, *second])


def test_tasks_share_a_scale_from_chance_to_reference() -> None:
    first, second = np.array([20.0, 20.0, 20.0]), np.array([-5.0, -5.0, -5.0])
    tens, zeros = np.array([10.0, 10.0, 10.0]), np.array([0.0, 0.0, 0.0])
    assert relative([first], [tens], [0.0]).value == 2.0
    assert relative([second], [zeros], [-10.0]).value == 0.5
    # Without variance inside the tasks nothing is left to resample.
    found = relative([first, second], [tens, zeros], [0.0, -10.0], np.mean)
    assert (found.value, found.low, found.high) == (1.25, 1.25, 1.25)


def test_a_baseline_has_1_beside_itself_and_its_own_uncertainty_counts() -> None:
    scores = np.array([5000.0, 5200.0, 5400.0, 5600.0, 500.0])
    found = relative([scores], [scores], [-289.0])
    assert found.value == 1.0
    fixed = relative([scores], [np.full(5, 5200.0)], [-289.0])
    assert found.high - found.low > fixed.high - fixed.low
    with pytest.raises(ValueError, match="no better than 6000"):
        relative([scores], [scores], [6000.0])
