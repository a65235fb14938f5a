"""Prioritized samplers: probabilities, weights and state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eagerly.buffers import LAPSampler, ProportionalSampler, ReplayBuffer, Transition
from eagerly.state import flatten_state, unflatten_state

SAMPLERS = [ProportionalSampler, LAPSampler]


def fed(sampler: Any, td_error: list[float]) -> Any:
    """Adds rows to a sampler, and passes it one TD error per row."""
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


def test_lap_draws_small_errors_uniformly_and_large_ones_in_proportion() -> None:
    found = frequencies(fed(LAPSampler(exponent=0.5), [0.1, 0.9, 4, 9]), 4)
    np.testing.assert_allclose(found, np.array([1, 1, 2, 3]) / 7, atol=0.01)


def test_each_batch_is_stratified() -> None:
    sampler = fed(ProportionalSampler(exponent=1.0), [1.0] * 8)
    assert (np.sort(sampler.draw(8, (50, 8)), axis=1) == np.arange(8)).all()


def test_weights_correct_the_sampling_bias() -> None:
    sampler = fed(
        ProportionalSampler(exponent=1.0, correction=0.5, correction_updates=2), [1, 4, 16]
    )
    places = np.array([[0, 1, 2], [1, 1, 2], [2, 2, 2], [0, 2, 2]])
    sampler.draw(3, places.shape)
    # β is 0.5, 0.75, 1 and 1 in the four batches. A weight is (p / min p)^-β, where min p is the
    # lowest priority in the batch.
    expected = [[1, 1 / 2, 1 / 4], [1, 1, 4**-0.75], [1, 1, 1], [1, 1 / 16, 1 / 16]]
    np.testing.assert_allclose(sampler.weights(places), expected, rtol=1e-5)
    assert sampler.weights(places).dtype == np.float32
    assert LAPSampler().weights(places) is None


def test_the_weighted_mean_over_draws_is_the_mean_over_all_rows() -> None:
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
    # `highest` does not decrease, even if no row has this priority anymore.
    sampler.feedback(np.array([[0, 2]]), {"td_error": np.array([[2.0, 2.0]], np.float32)})
    sampler.added(np.array([3]))
    np.testing.assert_allclose(sampler.priorities(), [2, 2, 2, 5], rtol=1e-5)


def learned(sampler: Any, *updates: list[float]) -> None:
    """Passes a sampler the feedback of a call: per update, the TD errors of rows 0, 1 and so on."""
    places = np.tile(np.arange(len(updates[0])), (len(updates), 1))
    sampler.feedback(places, {"td_error": np.array(updates, np.float32)})


@pytest.mark.parametrize("kind", SAMPLERS)
def test_the_highest_priority_is_reset_to_the_stored_maximum(kind: Any) -> None:
    sampler = kind(exponent=1.0, highest_every=4)
    sampler.added(np.arange(3))
    learned(sampler, [9.0, 5.0], [2.0, 5.0])  # the feedback of updates 1 and 2
    assert sampler.highest == pytest.approx(9)  # although no row has this priority anymore
    learned(sampler, [3.0, 4.0], [6.0, 2.0])
    assert sampler.highest == pytest.approx(6)  # after update 4, reset to the maximum of 6, 2, 1
    learned(sampler, [2.0, 7.0], [2.0, 3.0])
    sampler.added(np.array([3]))  # the row gets priority 7, the highest since the last reset
    np.testing.assert_allclose(sampler.priorities(), [2, 3, 1, 7], rtol=1e-5)
    learned(sampler, [2.0, 3.0, 2.0, 2.5], [2.0, 3.0, 2.0, 2.5])
    assert sampler.highest == pytest.approx(3)


def test_the_highest_priority_is_reset_even_if_its_row_is_overwritten() -> None:
    buffer = ReplayBuffer(3, 1, 1, sampler=LAPSampler(exponent=1.0, highest_every=2))
    row, sampler = np.zeros((1, 1)), buffer.sampler
    for _ in range(3):
        buffer.add(Transition(row, row, np.zeros(1), np.ones(1), row))
    learned(sampler, [9.0, 4.0, 5.0], [8.0, 4.0, 5.0])
    assert sampler.highest == 8  # type: ignore[attr-defined]
    buffer.add(Transition(row, row, np.zeros(1), np.ones(1), row))  # replaces row 0
    learned(sampler, [2.0], [2.0])
    assert sampler.highest == 5  # type: ignore[attr-defined]
    assert buffer.draw(2, 4)[0].shape[:2] == (2, 4)


@pytest.mark.parametrize("kind", SAMPLERS)
def test_resets_of_the_highest_priority_continue_after_restoring(kind: Any) -> None:
    through = kind(exponent=1.0, highest_every=4)
    through.added(np.arange(2))
    learned(through, [9.0, 5.0], [2.0, 5.0])
    assert through.state()["fed_back"] == 2
    continued = kind(exponent=1.0, highest_every=4)
    continued.added(np.arange(2))
    continued.restore(through.state())
    for sampler in (through, continued):
        learned(sampler, [3.0, 4.0], [1.0, 4.0])
        assert sampler.highest == pytest.approx(4)
    with pytest.raises(ValueError, match=r"fed_back of .* at least 0; got -1"):
        continued.restore(through.state() | {"fed_back": -1})


@pytest.mark.parametrize("kind", SAMPLERS)
def test_calls_that_extend_beyond_the_next_reset_are_rejected(
    kind: Any,
) -> None:
    sampler = kind(exponent=1.0, highest_every=4)
    sampler.added(np.arange(1))
    learned(sampler, [9.0], [9.0], [9.0])
    before = sampler.priorities()
    message = r"next reset of the highest priority \(every 4 updates, next in 1\); "
    with pytest.raises(ValueError, match=message + "got 2"):
        learned(sampler, [1.0], [1.0])
    with pytest.raises(ValueError, match=message + "got 3"):  # `draw` fails, too
        sampler.draw(1, (3, 5))
    np.testing.assert_array_equal(sampler.priorities(), before)
    learned(sampler, [2.0])
    assert sampler.highest == pytest.approx(2)
    with pytest.raises(ValueError, match="highest_every must be at least 0; got -1"):
        kind(highest_every=-1)


@pytest.mark.parametrize("kind", SAMPLERS)
def test_a_row_drawn_twice_gets_the_priority_of_its_last_update(kind: Any) -> None:
    sampler = fed(kind(exponent=1.0), [1, 1, 1])
    errors = np.array([[3.0, 9.0], [4.0, 2.0]], np.float32)
    sampler.feedback(np.array([[0, 1], [2, 0]]), {"td_error": errors})
    np.testing.assert_allclose(sampler.priorities(), [2, 9, 4], rtol=1e-5)
    assert sampler.highest == pytest.approx(9)


def test_an_overwritten_row_has_the_priority_of_a_new_one() -> None:
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
def test_draws_are_bitwise_identical_after_restoring(kind: Any) -> None:
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
    document, arrays = flatten_state(through.state())
    assert {name: array.nbytes for name, array in arrays.items()} == {"priorities": 4 * 500}
    continued = kind(4)
    for start in (0, 200):  # a checkpoint's rows may be restored in parts
        continued.added(np.arange(start, start + 300))
    continued.restore(unflatten_state(document, arrays))
    seed = random.bit_generator.state
    first = go_on(through)
    random.bit_generator.state = seed
    for one, other in zip(first, go_on(continued), strict=True):
        np.testing.assert_array_equal(one, other)
    assert continued.highest == through.highest


@pytest.mark.parametrize(
    ("kind", "wrong", "message"),
    [
        (LAPSampler, {"exponent": -1}, "exponent must be at least 0; got -1"),
        (ProportionalSampler, {"exponent": float("nan")}, "exponent must be at least 0; got nan"),
        (ProportionalSampler, {"correction": 2.0}, r"correction must be in \[0, 1\]; got 2.0"),
        (ProportionalSampler, {"correction_updates": 0}, "correction_updates must be at least 1"),
        (LAPSampler, {"highest_every": 2.5}, "highest_every must be an integer; got 2.5"),
    ],
)
def test_arguments_out_of_range_are_rejected(kind: Any, wrong: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**wrong)


def test_invalid_states_are_rejected() -> None:
    sampler = fed(LAPSampler(), [1, 2, 3])
    state = sampler.state()
    other = LAPSampler()
    other.added(np.arange(4))
    with pytest.raises(ValueError, match=r"priorities of .* finite array of float32 \(4,\)"):
        other.restore(state)
    with pytest.raises(ValueError, match="priorities must be 3 positive numbers"):
        sampler.restore(state | {"priorities": np.zeros(3, np.float32)})
    for highest in (0.0, float("nan")):
        with pytest.raises(ValueError, match=r"highest .*must be (above 0|a finite number)"):
            sampler.restore(state | {"highest": highest})
    proportional = fed(ProportionalSampler(), [1, 2, 3])
    with pytest.raises(
        ValueError,
        match=r"updates of .* at least 0; got -1",
    ):
        proportional.restore(proportional.state() | {"updates": -1})


@pytest.mark.parametrize("kind", SAMPLERS)
@pytest.mark.parametrize("exponent", [0.0, 0.6, 10.0])
def test_rows_with_errors_of_any_size_can_be_drawn_and_restored(kind: Any, exponent: float) -> None:
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
def test_a_non_finite_error_is_rejected(kind: Any, value: float) -> None:
    sampler = fed(kind(), [1, 2, 3])
    before, places = sampler.priorities(), np.array([[0, 1, 2], [0, 1, 2]])
    errors = np.array([[1, 1, 1], [1, value, 1]], np.float32)
    with pytest.raises(FloatingPointError, match=f"got {value} for row 1 of update 2 in this call"):
        sampler.feedback(places, {"td_error": errors})
    np.testing.assert_array_equal(sampler.priorities(), before)


def test_rows_that_another_thread_added_since_the_draw_have_priorities_of_new_rows() -> None:
    def row(count: int) -> Transition:
        ones = np.ones((count, 1))
        return Transition(ones, ones, np.ones(count), np.ones(count), ones)

    sampler = ProportionalSampler()
    buffer = ReplayBuffer(4, 1, 1, sampler=sampler)
    buffer.add(row(4))
    buffer.draw(1, 64)
    buffer.add(row(2))
    buffer.feedback({"td_error": np.full((1, 64), 0.01, np.float32)})
    sampler.draw(4, (1, 1))  # writes the priorities of new rows
    first, second, third, fourth = sampler.priorities()
    assert first == second == sampler.highest > third == fourth
