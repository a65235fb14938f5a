"""Statistics over seeds, compared with numbers that can be checked by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from eagerly.curves.estimates import (
    difference,
    format_number,
    interquartile_mean,
    over_runs,
    probability_of_improvement,
    relative,
)


def test_the_interquartile_mean_of_five_is_the_mean_of_the_middle_three() -> None:
    assert interquartile_mean(np.array([-1e6, 1.0, 2.0, 6.0, 1e6])) == 3.0


def test_a_curve_is_estimated_point_by_point() -> None:
    curves = np.array([[0.0, 10.0, 5.0], [2.0, 20.0, 5.0], [4.0, 30.0, 5.0]])
    found = over_runs(curves, np.mean)
    # The resample with the lowest mean contains one run three times, and so does the one with the
    # highest mean. Each has the probability 1/27 = 3.7 %. The interval leaves out only 2.5 % on
    # either side, so it ends at these two means.
    assert found.value.tolist() == [2.0, 20.0, 5.0]
    assert found.low.tolist() == [0.0, 10.0, 5.0]
    assert found.high.tolist() == [4.0, 30.0, 5.0]


def test_an_interval_matches_the_quantiles_of_all_resamples() -> None:
    scores = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    every = [interquartile_mean(np.array(sample)) for sample in itertools.product(scores, repeat=5)]
    low, high = np.quantile(every, [0.025, 0.975])
    found = over_runs(scores)
    assert (found.low, found.high) == pytest.approx((low, high), rel=0.02)
    assert over_runs(scores, np.median).value == 4.0


@pytest.mark.parametrize(("runs", "least", "most"), [(5, 0.80, 0.87), (20, 0.90, 0.96)])
def test_intervals_of_few_runs_are_too_narrow(runs: int, least: float, most: float) -> None:
    random = np.random.default_rng(0)
    found = over_runs(random.normal(7.0, 2.0, (runs, 500)), np.mean)
    held = np.mean((found.low <= 7.0) & (found.high >= 7.0))
    assert least < held < most


def test_one_run_has_no_interval() -> None:
    found = over_runs(np.array([3.0]))
    assert found.value == 3.0
    assert str(found) == "3"
    assert np.isnan(found.low)
    assert np.isnan(found.high)


def test_the_interval_of_a_clear_difference_excludes_0() -> None:
    low, high = np.array([1.0, 2.0, 3.0, 4.0, 5.0]), np.array([101.0, 102.0, 103.0, 104.0, 105.0])
    found = difference(high, low)
    assert found.value == 100.0
    assert found.low > 95.0
    assert difference(low, low).low < 0.0 < difference(low, low).high


def test_the_probability_of_improvement_counts_pairs() -> None:
    first, second = [np.array([1.0, 3.0])], [np.array([0.0, 2.0])]
    # The first value is larger in 3 of 4 pairs: 1 > 0, 3 > 0 and 3 > 2.
    assert probability_of_improvement(first, second).value == 0.75
    same = [np.array([1.0, 1.0])]
    assert probability_of_improvement(same, same).value == 0.5


def test_scores_are_normalized_by_random_and_reference_scores() -> None:
    first, second = np.array([20.0, 20.0, 20.0]), np.array([-5.0, -5.0, -5.0])
    tens, zeros = np.array([10.0, 10.0, 10.0]), np.array([0.0, 0.0, 0.0])
    assert relative([first], [tens], [0.0]).value == 2.0
    assert relative([second], [zeros], [-10.0]).value == 0.5
    # Without variance within the tasks, all resamples are equal.
    found = relative([first, second], [tens, zeros], [0.0, -10.0])
    assert (found.value, found.low, found.high) == (1.25, 1.25, 1.25)


def test_a_baseline_scores_1_against_itself_and_its_uncertainty_counts() -> None:
    scores = np.array([5000.0, 5200.0, 5400.0, 5600.0, 500.0])
    other = np.array([10.0, 40.0, 50.0])
    assert relative([scores, other], [scores, other], [-289.0, 0.0]).value == 1.0
    found = relative([scores], [scores], [-289.0])
    assert found.value == 1.0
    fixed = relative([scores], [np.full(5, 5200.0)], [-289.0])
    assert found.high - found.low > fixed.high - fixed.low


def test_a_scale_that_no_resample_can_invert_bounds_the_interval() -> None:
    better, tens = np.array([900.0, 1000.0, 1300.0]), np.array([-8.0, 0.0, 5.0, 150.0, 420.0])
    assert relative([better], [tens], [-9.0]).high < 300


@pytest.mark.parametrize(
    ("value", "text"),
    [(123456.7, "123457"), (1000.4, "1000"), (999.96, "1000"), (-3.14159, "-3.142")],
)
def test_numbers_are_formatted_with_four_digits(value: float, text: str) -> None:
    assert format_number(value) == text
