"""8-bit integer grids match numbers computed by hand, and rounding is idempotent."""

from __future__ import annotations

import numpy as np
import pytest

from eagerly.policies.integer_grids import (
    grid,
    integers,
    layer_integers,
    quantized,
    quantized_layer,
    quantized_tanh,
)


@pytest.mark.parametrize(
    ("low", "high", "scale", "zero_point"),
    [
        (0.0, 255.0, 1.0, -128),
        (-255.0, 0.0, 1.0, 127),
        (-100.0, 155.0, 1.0, -28),
        (5.0, 510.0, 2.0, -128),  # the range is widened to include 0
        (-1.0, 127 / 128, 1 / 128, 0),
    ],
)
def test_a_grid_has_256_values_including_0(
    low: float, high: float, scale: float, zero_point: int
) -> None:
    assert grid(low, high) == (np.float32(scale), zero_point)
    assert quantized(np.zeros(1), low, high) == 0.0


def test_numbers_are_rounded_to_the_grid_and_clipped_to_its_range() -> None:
    x = np.array([-1.0, 0.4, 0.6, 2.5, 254.9, 300.0], np.float32)
    np.testing.assert_array_equal(integers(x, 0.0, 255.0), [-128, -128, -127, -126, 127, 127])
    np.testing.assert_array_equal(quantized(x, 0.0, 255.0), [0, 0, 1, 2, 255, 255])


def test_a_quantized_tanh_is_at_most_127_of_128() -> None:
    found = quantized_tanh(np.array([-9.0, 0.0, 9.0], np.float32))
    np.testing.assert_array_equal(found, [-1.0, 0.0, 127 / 128])


def test_quantizing_a_layer_twice_changes_nothing() -> None:
    random = np.random.default_rng(0)
    kernel = random.normal(size=(30, 4000)).astype(np.float32)
    bias, scale = random.normal(size=4000).astype(np.float32), np.float32(0.013)
    once = quantized_layer(kernel, bias, scale)
    for mine, its in zip(quantized_layer(*once, scale), once, strict=True):
        np.testing.assert_array_equal(mine, its)
    pairs = zip(layer_integers(*once, scale), layer_integers(kernel, bias, scale), strict=True)
    for mine, its in pairs:
        np.testing.assert_array_equal(mine, its)


def test_a_bias_much_larger_than_its_column_determines_the_scale() -> None:
    kernel = np.array([[127.0, 127e-9, 127e-9], [1.0, 50e-9, -1e-9]], np.float32)
    bias, scale = np.array([1.0, 1.0, -4.0], np.float32), np.float32(0.5)
    q, steps, scales = layer_integers(kernel, bias, scale)
    # The biases 1 and -4 take 2^30 steps, so steps are 2^-30 and 2^-28. A step is the input scale,
    # 1/2, times the scale of the column, so these scales are 2^-29 = 1.9e-9 and 2^-27 = 7.5e-9.
    np.testing.assert_array_equal(scales, [1.0, 2.0**-29, 2.0**-27])
    np.testing.assert_array_equal(steps, [2, 2**30, -(2**30)])
    np.testing.assert_array_equal(q, [[127, 68, 17], [1, 27, 0]])
    rounded = quantized_layer(kernel, bias, scale)
    np.testing.assert_array_equal(rounded[0], q * scales)
    np.testing.assert_array_equal(rounded[1], bias)


@pytest.mark.parametrize("size", [0.0, 1e-44, 1e-37, 1e-31])
def test_a_column_of_tiny_weights_becomes_zeros(size: float) -> None:
    kernel = np.full((3, 2), [1.0, size], np.float32)
    q, _, scales = layer_integers(kernel, np.ones(2), np.float32(0.01))
    np.testing.assert_array_equal(q, [[127, 0]] * 3)
    assert scales[1] == np.float32(1.0) / np.float32(127.0)
