"""Weights are rounded so that their errors compensate each other in the layer's outputs."""

from __future__ import annotations

import numpy as np

from eagerly.export.calibration import calibrated
from eagerly.export.rounding import compensated
from eagerly.policies.integer_grids import column_scales
from eagerly.policies.numpy_actor import NumpyActor
from tests.eagerly.export.actors import network_of


def _scales(kernel: np.ndarray) -> np.ndarray:
    return column_scales(kernel, np.zeros(kernel.shape[1]), np.float32(1.0))


def test_one_weight_compensates_for_the_error_of_another() -> None:
    """For two equal inputs, the weights 12.4 and 12.4 become 12 and 13, in either order."""
    kernel = np.array([[12.4], [12.4], [127.0]], np.float32)
    random = np.random.default_rng(0)
    first, third = random.normal(size=(2, 1000, 1))
    inputs = np.concatenate([first, first, 0.01 * third], axis=1)
    found = compensated(kernel, inputs, np.ones(1, np.float32))
    assert sorted(found[:2, 0].tolist()) == [12.0, 13.0]
    assert found[2, 0] == 127.0


def test_kernels_are_on_their_grids_and_keep_their_scales() -> None:
    random = np.random.default_rng(1)
    kernel = random.normal(size=(20, 30)).astype(np.float32)
    inputs = random.normal(size=(500, 20)) @ random.normal(size=(20, 20))
    scales = _scales(kernel)
    found = compensated(kernel, inputs, scales)
    np.testing.assert_allclose(found / scales, np.rint(found / scales), atol=1e-4)
    np.testing.assert_allclose(_scales(found), scales, rtol=1e-6)
    nearest = np.rint(kernel / scales) * scales
    errors = [np.square(inputs @ (each - kernel)).mean() for each in (found, nearest)]
    assert errors[0] < 0.6 * errors[1]


def test_weights_of_constant_inputs_are_rounded_to_nearest() -> None:
    kernel = np.array([[1.0, -3.0], [0.3, 0.004]], np.float32)
    scales = np.array([1.0, 3.0], np.float32) / 127.0
    expected = [[1.0, -3.0], [38 * scales[0], 0.0]]
    found = compensated(kernel, np.ones((9, 2)), scales)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_error_at_the_largest_weight_is_compensated() -> None:
    """11.6 becomes 12. The third weight compensates for the error, because 127 is fixed."""
    kernel = np.array([[11.6], [127.0], [3.0]], np.float32)
    random = np.random.default_rng(0)
    first, other = random.normal(size=(2, 4000, 1))
    inputs = np.concatenate([3.0 * first, first + 0.01 * other, 0.3 * first], axis=1)
    found = compensated(kernel, inputs, np.ones(1, np.float32))
    # The remaining error, as a multiple of `first`, is 3 · 0.4 + 0 - 0.3 · 3 = 0.3.
    np.testing.assert_array_equal(found, [[12.0], [127.0], [0.0]])


def test_a_kernel_whose_bias_determines_its_scale_is_rounded_to_that_grid() -> None:
    kernel = np.array([[50.2], [3.3]], np.float32)
    inputs = np.random.default_rng(0).normal(size=(100, 2))
    found = compensated(kernel, inputs, np.ones(1, np.float32))
    np.testing.assert_array_equal(found, [[50.0], [3.0]])


def test_biases_correct_the_mean_error() -> None:
    network, random = network_of("box"), np.random.default_rng(2)
    rows = random.normal(size=(3000, 3))
    apart = NumpyActor(calibrated(network, rows))(rows) - NumpyActor(network)(rows)
    assert np.abs(apart.mean(axis=0)).max() < 5e-4
