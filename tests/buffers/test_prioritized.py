"""Prioritised samplers: their probabilities, weights, and what they keep."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eagerly.buffers import LAPSampler, ProportionalSampler, ReplayBuffer, Transition
from eagerly.state import joined, split

SAMPLERS = [ProportionalSampler, LAPSampler]


def fed(sampler: Any, td_error: list[float]) -> Any:
    """Lets a sampler know of rows, and of an error of each."""
    places = np.arange(len(td_error))
    sampler.added(places)
    sampler.feedback(places[np.newaxis], {"td_error": np.array([td_error], np.float32)})
    return sampler


def frequencies(sampler: Any, count: int) -> np.ndarray:
    places = sampler.draw(count, (200, 500))
    return np.bincount(places.ravel(), minlength=count) / places.size


def test_rows_are_drawn_in_proportion_to_their_errors() -> None:
    found = frequencies(fed(ProportionalSampler(exponent=0.5), [1, 4, 9, 0]), 4)
    np.testing.assert_allclose(found, np.array([1, 2, 3, 0.001]) / 6.001, atol=0.01)


def test_lap_draws_small_errors_alike_and_large_ones_in_proportion() -> None:
    found = frequencies(fed(LAPSampler(exponent=0.5), [0.1, 0.9, 4, 9]), 4)
    np.testing.assert_allclose(found, np.array([1, 1, 2, 3]) / 7, atol=0.01)


def test_each_batch_is_drawn_in_strata() -> None:
    sampler = fed(ProportionalSampler(exponent=1.0), [1.0] * 8)
    assert (np.sort(sampler.draw(8, (50, 8)), axis=1) == np.arange(8)).all()


def test_weights_correct_what_sampling_distorts() -> None:
    sampler = fed(
        ProportionalSampler(exponent=1.0, correction=0.5, correction_updates=2), [1, 4, 16]
    )
    places = np.array([[0, 1, 2], [1, 1, 2], [2, 2, 2], [0, 2, 2]])
    sampler.draw(3, places.shape)
    # β = 0.5, 0.75, 1, 1; (p / least)^-β, so that the largest of each batch is 1.
    expected = [[1, 1 / 2, 1 / 4], [1, 1, 4**-0.75], [1, 1, 1], [1, 1 / 16, 1 / 16]]
    np.testing.assert_allclose(sampler.weights(places), expected, rtol=1e-5)
    assert sampler.weights(places).dtype == np.float32
    assert LAPSampler().weights(places) is None


def test_weights_make_the_mean_over_draws_that_over_all_rows() -> None:
    sampler = fed(ProportionalSampler(exponent=1.0, correction=1.0), [1, 2, 4, 8])
    places = sampler.draw(4, (1, 100_000))
    weights, values = sampler.weights(places)[0], np.array([3.0, -1.0, 5.0, 2.0])
    mean = (weights * values[places[0]]).sum() / weights.sum()
    np.testing.assert_allclose(mean, values.mean(), rtol=0.01)


@pytest.mark.parametrize("kind", SAMPLERS)
def test_new_rows_have_the_highest_priority_so_far(kind: Any) -> None:
    sampler = kind(exponent=1.0)
    sampler.added(np.arange(2))
    assert sampler.priorities().tolist() == [1, 1]
    sampler.feedback(np.array([[0, 1]]), {"td_error": np.array([[5.0, 2.0]], np.float32)})
    sampler.added(np.array([2]))
    assert sampler.priorities()[2] == sampler.priorities()[0] == np.float32(sampler.highest)
    # It never falls again, though no row has it any more.
    sampler.feedback(np.array([[0, 2]]), {"td_error": np.array([[2.0, 2.0]], np.float32)})
    sampler.added(np.array([3]))
    np.testing.assert_allclose(sampler.priorities(), [2, 2, 2, 5], rtol=1e-5)


@pytest.mark.parametrize("kind", SAMPLERS)
def test_of_a_row_drawn_twice_in_a_call_the_last_update_counts(kind: Any) -> None:
    sampler = fed(kind(exponent=1.0), [1, 1, 1])
    errors = np.array([[3.0, 9.0], [4.0, 2.0]], np.float32)
    sampler.feedback(np.array([[0, 1], [2, 0]]), {"td_error": errors})
    np.testing.assert_allclose(sampler.priorities(), [2, 9, 4], rtol=1e-5)
    assert sampler.highest == pytest.approx(9)


def test_a_row_that_is_overwritten_is_a_new_one() -> None:
    buffer = ReplayBuffer(4, 1, 1, sampler=LAPSampler(exponent=1.0))
    row = np.zeros((1, 1))

    def add(count: int) -> None:
        rows = np.repeat(row, count, axis=0)
        buffer.add(Transition(rows, rows, np.zeros(count), np.ones(count), rows))

    add(4)
    buffer.draw(1, 4)
    buffer.feedback({"td_error": np.full((1, 4), 1.0, np.float32)})
    sampler: Any = buffer.sampler
    sampler.feedback(np.array([[1]]), {"td_error": np.array([[8.0]], np.float32)})
    add(1)
    assert sampler.priorities().tolist() == [8, 8, 1, 1]


@pytest.mark.parametrize("kind", SAMPLERS)
def test_draws_go_on_bit_for_bit_after_restoring(kind: Any) -> None:
    random = np.random.default_rng(0)

    def go_on(sampler: Any) -> list[np.ndarray]:
        draws = []
        for _ in range(3):
            places = sampler.draw(500, (4, 32))
            errors = (random.random(places.shape) * 10).astype(np.float32)
            sampler.feedback(places, {"td_error": errors})
            draws += [places, sampler.weights(places)]
        return draws

    through = fed(kind(3), (10 * random.random(500)).tolist())
    go_on(through)
    document, arrays = split(through.state())
    assert {name: array.nbytes for name, array in arrays.items()} == {"priorities": 4 * 500}
    continued = kind(4)
    for start in (0, 200):  # as rows are put back
        continued.added(np.arange(start, start + 300))
    continued.restore(joined(document, arrays))
    seed = random.bit_generator.state
    first = go_on(through)
    random.bit_generator.state = seed
    for one, other in zip(first, go_on(continued), strict=True):
        np.testing.assert_array_equal(one, other)
    assert continued.highest == through.highest


def test_priorities_of_something_else_are_refused() -> None:
    sampler = fed(LAPSampler(), [1, 2, 3])
    state = sampler.state()
    other = LAPSampler()
    other.added(np.arange(4))
    with pytest.raises(ValueError, match=r"priorities of 4 rows, float32; got float32 \(3,\)"):
        other.restore(state)
    with pytest.raises(ValueError, match="finite and above 0"):
        sampler.restore(state | {"priorities": np.zeros(3, np.float32)})
    with pytest.raises(ValueError, match="finite and above 0"):
        sampler.restore(state | {"highest": float("nan")})
    proportional = fed(ProportionalSampler(), [1, 2, 3])
    with pytest.raises(ValueError, match="updates must be at least 0; got -1"):
        proportional.restore(proportional.state() | {"updates": -1})


@pytest.mark.parametrize("kind", SAMPLERS)
@pytest.mark.parametrize("exponent", [0.0, 0.6, 10.0])
def test_errors_of_any_size_leave_rows_that_can_be_drawn_and_restored(
    kind: Any, exponent: float
) -> None:
    sampler = fed(kind(exponent=exponent), [0.0, 1e-30, 1.0, 1e30, 3e38])
    places = sampler.draw(5, (20, 16))
    assert {0, 1, 2, 3, 4} >= set(places.ravel().tolist())
    if kind is ProportionalSampler:
        assert np.isfinite(sampler.weights(places)).all()
    sampler.added(np.array([5]))
    other = kind(exponent=exponent)
    other.added(np.arange(6))
    other.restore(sampler.state())
    np.testing.assert_array_equal(other.draw(6, (20, 16)), sampler.draw(6, (20, 16)))


@pytest.mark.parametrize("kind", SAMPLERS)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_error_that_is_not_finite_is_refused(kind: Any, value: float) -> None:
    sampler = fed(kind(), [1, 2, 3])
    before, places = sampler.priorities(), np.array([[0, 1, 2], [0, 1, 2]])
    errors = np.array([[1, 1, 1], [1, value, 1]], np.float32)
    with pytest.raises(FloatingPointError, match=f"got {value} for row 1 of update 2 of a call"):
        sampler.feedback(places, {"td_error": errors})
    np.testing.assert_array_equal(sampler.priorities(), before)
