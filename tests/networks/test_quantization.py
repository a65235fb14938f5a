"""Fake quantization: bit-identical values in every mode and in NumPy, and expected gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from eagerly.networks.quantization import (
    fake_quantized,
    grid,
    quantized_tanh,
    quantized_weights,
)
from eagerly.policies import integer_grids as in_numpy

# An 8-bit grid over this range has steps of 1.
WHOLE = tf.constant(0.0), tf.constant(255.0)


def _activations(x: tf.Tensor, low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
    return fake_quantized(x, *grid(low, high))


def _tanh(x: tf.Tensor, low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
    return quantized_tanh(x, *grid(low, high))


def _weights(x: tf.Tensor, low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
    kernel, bias = quantized_weights(x[:-1], x[-1], grid(low, high)[0])
    return tf.concat([kernel, bias[tf.newaxis]], axis=0)


def _weights_in_numpy(x: np.ndarray, low: np.float32, high: np.float32) -> np.ndarray:
    scale, _ = in_numpy.grid(low, high)
    kernel, bias = in_numpy.quantized_layer(x[:-1], x[-1], scale)
    return np.concatenate([kernel, bias[np.newaxis]])


def _tanh_in_numpy(x: np.ndarray, low: np.float32, high: np.float32) -> np.ndarray:
    return in_numpy.quantized_tanh(in_numpy.quantized(x, low, high))


OPS = {
    "activations": (_activations, in_numpy.quantized),
    "tanh": (_tanh, _tanh_in_numpy),
    "weights": (_weights, _weights_in_numpy),
}


def _drawn(seed: int) -> tuple[np.ndarray, np.float32, np.float32]:
    """Draws values `[40, 30]` and a range. A third of the values lie halfway between steps."""
    random = np.random.default_rng(seed)
    ends = random.exponential(size=2) * 10.0 ** random.uniform(-2, 1, 2)
    low, high = np.float32(-ends[0] * (seed % 5 > 0)), np.float32(ends[1])
    scale, _ = in_numpy.grid(low, high)
    halves = ((np.arange(-200, 200) + 0.5) * np.float64(scale)).astype(np.float32)
    inside = random.normal(size=1200 - 804).astype(np.float32) * (high - low)
    beside = np.nextafter(halves, np.float32(1e9))
    numbers = np.concatenate([halves, beside, [low, high, 0.0, -0.0], inside])
    return numbers.astype(np.float32).reshape(40, 30), low, high


def _bits(values: np.ndarray) -> np.ndarray:
    return values.view(np.int32)


@pytest.mark.parametrize("name", OPS)
def test_values_and_gradients_have_the_same_bits_in_every_mode_and_in_numpy(name: str) -> None:
    op, expected = OPS[name]

    def both(x: tf.Tensor, low: tf.Tensor, high: tf.Tensor, upstream: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            values = op(x, low, high)
        return values, tape.gradient(values, x, upstream)

    modes: list[Callable[..., Any]] = [both, tf.function(both), tf.function(both, jit_compile=True)]
    upstream = np.random.default_rng(9).normal(size=(40, 30)).astype(np.float32)
    for seed in range(100):
        given = [tf.constant(each) for each in (*_drawn(seed), upstream)]
        (values, gradient), *others = ([each.numpy() for each in m(*given)] for m in modes)
        np.testing.assert_array_equal(values, expected(*_drawn(seed)))
        for other_values, other_gradient in others:
            np.testing.assert_array_equal(_bits(values), _bits(other_values))
            # The gradient of tanh, 1 - tanh², is not rounded to a grid.
            if name == "tanh":
                np.testing.assert_allclose(gradient, other_gradient, 1e-5, 5e-6)
            else:
                np.testing.assert_array_equal(_bits(gradient), _bits(other_gradient))


def test_columns_of_any_scale_have_the_same_bits_in_every_mode_and_in_numpy() -> None:
    random = np.random.default_rng(4)
    sizes = (10.0 ** np.linspace(-46, 8, 600)).astype(np.float32)
    scale = tf.constant(0.013)
    modes = [quantized_weights, tf.function(quantized_weights)]
    modes.append(tf.function(quantized_weights, jit_compile=True))
    for _ in range(10):
        kernel = random.normal(size=(20, 600)).astype(np.float32) * sizes
        bias = random.normal(size=600).astype(np.float32) * random.permutation(sizes)
        expected = in_numpy.quantized_layer(kernel, bias, np.float32(0.013))
        for mode in modes:
            found = mode(tf.constant(kernel), tf.constant(bias), scale)
            for mine, its in zip(found, expected, strict=True):
                np.testing.assert_array_equal(mine, its)


def test_a_bias_stays_accurate_next_to_much_smaller_weights() -> None:
    kernel = tf.constant([[1.0, 1e-9, 1e-20, 1e-37, 1e-44]])
    on_grid = quantized_weights(kernel, tf.ones(5), tf.constant(2.0**-7))
    np.testing.assert_allclose(on_grid[1], np.ones(5), 1e-3)
    # A bias is at most about 2^30 steps. The scale of the other columns is therefore at least
    # 2^-23, so their weights are rounded to 0.
    np.testing.assert_array_equal(on_grid[0], [[1.0, 0.0, 0.0, 0.0, 0.0]])


def test_scales_are_rounded_correctly_in_every_mode() -> None:
    random = np.random.default_rng(0)
    high = (random.uniform(1, 2, 100_000) * 2.0 ** random.integers(-12, 12, 100_000)).astype("f")
    low = -high * random.uniform(0, 1, 100_000).astype("f")
    whole = high.astype(np.float64) - low
    scale = (whole / 255.0).astype(np.float32)
    zero_points = np.floor(-127.5 - low.astype(np.float64) * 255.0 / whole)
    for mode in (grid, tf.function(grid), tf.function(grid, jit_compile=True)):
        found = [each.numpy() for each in mode(tf.constant(low), tf.constant(high))]
        np.testing.assert_array_equal(found[0], scale)
        np.testing.assert_array_equal(found[1], zero_points)
    # Graphs replace a division by a constant with a multiplication by its inverse, which rounds
    # differently.
    assert (high * np.float32(1.0 / 255.0) != high / np.float32(255.0)).any()


def test_halves_round_to_even_and_the_gradient_is_zero_outside_the_grid() -> None:
    x = tf.constant([0.5, 1.5, 2.5, -0.4, -0.6, 255.4, 255.6, 300.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        values = fake_quantized(x, *grid(*WHOLE))
    np.testing.assert_array_equal(values, [0, 2, 2, 0, 0, 255, 255, 255])
    gradient = tape.gradient(values, x, tf.constant([float(n) for n in range(1, 9)]))
    np.testing.assert_array_equal(gradient, [1, 2, 3, 4, 0, 6, 0, 0])


def test_weights_are_integer_multiples_with_a_straight_through_gradient() -> None:
    # The two columns have maxima of 127 and 254, and so steps of 1 and 2. Inputs have steps of 1.
    kernel = tf.constant([[127.0, -254.0], [0.5, 2.9], [-1.5, 1.0]])
    bias = tf.constant([2.5, 5.0])
    with tf.GradientTape() as tape:
        tape.watch((kernel, bias))
        on_grid = quantized_weights(kernel, bias, grid(*WHOLE)[0])
    np.testing.assert_array_equal(on_grid[0], [[127, -254], [0, 2], [-2, 0]])
    np.testing.assert_array_equal(on_grid[1], [2, 4])
    for gradient in tape.gradient(on_grid, (kernel, bias)):
        np.testing.assert_array_equal(gradient, np.ones_like(gradient))


def test_quantized_tanh_has_the_derivative_of_tanh_even_outside_the_range() -> None:
    x = tf.constant([0.0, 1.0, -1.0, 6.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        values = quantized_tanh(x, *grid(tf.constant(-4.0), tf.constant(4.0)))
    np.testing.assert_allclose(tape.gradient(values, x), 1 - np.tanh(x) ** 2, 1e-5, 1e-7)
    # The grid value nearest to 1 is 1.00392, whose tanh is 97.7 / 128. The result for 6 is at most
    # 127 / 128, because 128 is not a signed 8-bit integer.
    assert (values.numpy() * 128).tolist() == [0, 98, -98, 127]
