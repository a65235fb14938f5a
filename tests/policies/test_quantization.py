"""Grids of 8-bit integers: by hand, and rounded twice as once."""

from __future__ import annotations

import numpy as np
import pytest

from eagerly.policies.quantization import (
    grid,
    integers,
    kernel_integers,
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
        (5.0, 510.0, 2.0, -128),  # widened to 0
        (-1.0, 127 / 128, 1 / 128, 0),
    ],
)
def test_a_range_has_256_steps_and_0_is_one_of_them(
    low: float, high: float, scale: float, zero_point: int
) -> None:
    assert grid(low, high) == (np.float32(scale), zero_point)
    assert quantized(np.zeros(1), low, high) == 0.0


def test_numbers_go_to_the_next_step_and_those_outside_to_the_ends() -> None:
    x = np.array([-1.0, 0.4, 0.6, 2.5, 254.9, 300.0], np.float32)
    np.testing.assert_array_equal(integers(x, 0.0, 255.0), [-128, -128, -127, -126, 127, 127])
    np.testing.assert_array_equal(quantized(x, 0.0, 255.0), [0, 0, 1, 2, 255, 255])


def test_a_tanh_ends_at_127_of_128() -> None:
    found = quantized_tanh(np.array([-9.0, 0.0, 9.0], np.float32))
    np.testing.assert_array_equal(found, [-1.0, 0.0, 127 / 128])


def test_a_layer_that_is_rounded_twice_is_as_rounded_once() -> None:
    random = np.random.default_rng(0)
    kernel = random.normal(size=(30, 4000)).astype(np.float32)
    bias, scale = random.normal(size=4000).astype(np.float32), np.float32(0.013)
    once = quantized_layer(kernel, bias, scale)
    for mine, its in zip(quantized_layer(*once, scale), once, strict=True):
        np.testing.assert_array_equal(mine, its)
    for mine, its in zip(kernel_integers(once[0]), kernel_integers(kernel), strict=True):
        np.testing.assert_array_equal(mine, its)
