"""Normalization of observations by running statistics, and batch normalization of ensembles."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from eagerly.networks.moments import RunningMoments
from eagerly.networks.normalization import (
    CLIP,
    EnsembleBatchNormalization,
    ObservationNormalization,
)
from eagerly.policies.numpy_actor import normalized
from eagerly.state import packed, unpacked


def _observed(*batches: np.ndarray) -> ObservationNormalization:
    made = ObservationNormalization(batches[0].shape[1])
    for batch in batches:
        made.update(batch)
    made.sync()
    return made


def test_statistics_do_not_depend_on_the_batching_of_observations() -> None:
    random = np.random.default_rng(0)
    rows = random.normal([1e4, -3.0, 0.01], [1.0, 20.0, 0.002], size=(1000, 3))
    for sizes in ([1] * 1000, [1000], [3, 997], [500, 1, 499]):
        made = _observed(*np.split(rows, np.cumsum(sizes)[:-1]))
        np.testing.assert_allclose(made.mean.numpy(), rows.mean(0), rtol=1e-6)
        np.testing.assert_allclose(1 / made.scale.numpy(), rows.std(0), rtol=1e-5)


def test_networks_use_new_statistics_only_after_sync() -> None:
    made = _observed(np.array([[0.0], [2.0]]))
    before = made(np.array([[5.0]])).numpy()
    assert before == [[4.0]]  # 5, normalized with mean 1 and standard deviation 1
    made.update(np.full((100, 1), 50.0))
    np.testing.assert_array_equal(made(np.array([[5.0]])).numpy(), before)
    made.sync()
    assert made(np.array([[5.0]])).numpy() != before


def test_scaling_requires_two_observations_and_constant_columns_are_only_shifted() -> None:
    made = ObservationNormalization(2)
    made.sync()
    made.update(np.array([[3.0, 4.0]]))
    made.sync()
    np.testing.assert_array_equal(made(np.array([[3.0, 4.0]])).numpy(), [[3.0, 4.0]])
    # A column of small values is not mistaken for a constant one.
    made = _observed(np.array([[-1e-7], [1e-7]]))
    np.testing.assert_allclose(made(np.array([[1e-7]])).numpy(), [[1.0]], rtol=1e-6)
    made = _observed(np.array([[7.0, 0.0], [7.0, 2.0]]))
    np.testing.assert_array_equal(made(np.array([[8.0, 2.0]])).numpy(), [[1.0, 1.0]])


def test_a_floor_limits_how_much_small_columns_are_enlarged() -> None:
    rows = np.array([[10.0, 7.0, 1.0], [20.0, 7.0, 1.4]])  # standard deviations 5, 0 and 0.2
    whole = ObservationNormalization(3, floor=0.5)
    whole.update(rows)
    for made in (whole, whole.of_last(2)):
        made.sync()
        # (20 - 15) / 5, (7 - 7) and (1.4 - 1.2) / 0.5
        expected = np.array([1.0, 0.0, 0.4])[3 - made.scale.shape[0] :]
        seen = rows[1:, 3 - made.scale.shape[0] :]
        np.testing.assert_allclose(made(seen).numpy(), [expected], rtol=1e-6, atol=1e-6)


def test_outliers_are_clipped_as_in_numpy() -> None:
    made = _observed(np.array([[0.0], [2.0]]))
    rows = np.array([[1e6], [-1e6], [1.5]], np.float32)
    np.testing.assert_array_equal(made(rows).numpy(), [[CLIP], [-CLIP], [0.5]])
    np.testing.assert_array_equal(
        normalized(rows, made.mean.numpy(), made.scale.numpy()), made(rows).numpy()
    )


def test_restored_statistics_continue_identically() -> None:
    random = np.random.default_rng(1)
    rows = random.normal(size=(50, 3)) * 1e5
    whole, begun, continued = (ObservationNormalization(3) for _ in range(3))
    for row in rows[:20]:
        whole.update(row[np.newaxis])
        begun.update(row[np.newaxis])
    continued.moments.restore(unpacked(packed(begun.moments.state())))
    for row in rows[20:]:
        whole.update(row[np.newaxis])
        continued.update(row[np.newaxis])
    np.testing.assert_equal(whole.moments.state(), continued.moments.state())


def test_values_below_the_normal_range_of_float32_count_as_constant() -> None:
    made = RunningMoments("observations", 2)
    made.update(np.random.default_rng(0).normal(size=(50, 2)) * [1e-20, 1e-40])
    found = made.inverse_deviation().astype(np.float32)
    assert (0.5e20 < found[0] < 2e20, found[1]) == (True, 1.0)


def test_invalid_statistics_are_rejected() -> None:
    state = RunningMoments("observations", 3).state()
    with pytest.raises(ValueError, match=r"must be a finite array of float64 \(2,\); got"):
        RunningMoments("observations", 2).restore(state)
    for name, value, message in (
        ("mean", float("nan"), "must be a finite array"),
        ("squares", -1.0, "squares of observations must be at least 0"),
    ):
        with pytest.raises(ValueError, match=message):
            RunningMoments("observations", 3).restore(state | {name: np.full(3, value)})


@pytest.mark.parametrize("shape", [(3,), (2, 4), (1, 2, 3), (0, 3), ()], ids=str)
def test_observations_of_a_wrong_shape_are_rejected(shape: tuple[int, ...]) -> None:
    layer = ObservationNormalization(3)
    with pytest.raises(ValueError, match=r"must have shape \[N, 3\], got .*array\[np"):
        layer.update(np.zeros(shape))
    with pytest.raises(FloatingPointError, match=r"must be finite; got .*nan"):
        layer.update(np.array([[0.0, np.nan, 0.0]]))
    assert layer.moments.count == 0


@pytest.mark.parametrize("compiled", [False, True])
def test_members_are_normalized_by_their_batch_in_training_and_otherwise_by_averages(
    compiled: bool,
) -> None:
    settings = {"momentum": 0.75, "epsilon": 0.0, "name": "n", "dtype": "float64"}
    layer = EnsembleBatchNormalization(2, 1, **settings)
    call = tf.function(layer.call, jit_compile=True) if compiled else layer
    # The inputs of member 0 have mean 2 and variance 4, those of member 1 mean 20 and variance 100.
    inputs = tf.constant([[[0.0], [4.0]], [[10.0], [30.0]]], tf.float64)
    normalized = call(inputs, training=True)
    np.testing.assert_allclose(normalized, [[[-1.0], [1.0]]] * 2, 1e-12)
    np.testing.assert_allclose(layer.mean, [[0.25 * 2], [0.25 * 20]], 1e-12)
    np.testing.assert_allclose(layer.variance, [[0.75 + 0.25 * 4], [0.75 + 0.25 * 100]], 1e-12)
    layer.gamma.assign([[3.0], [1.0]])
    layer.beta.assign([[1.0], [0.0]])
    expected = 3 * (np.array([[0.0], [4.0]]) - 0.5) / np.sqrt(1.75) + 1
    np.testing.assert_allclose(call(inputs, training=False)[0], expected, 1e-12)
    np.testing.assert_allclose(layer.first(inputs[0]), expected, 1e-12)
    assert len(layer.trainable_variables) == 2
