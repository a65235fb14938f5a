"""Padding and masked statistics, compared with arithmetic, loops and finite differences."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from eagerly.networks.padding import (
    masked_mean,
    masked_sum,
    masked_variance,
    pad,
    sequence_mask,
    unpad,
)

LENGTHS = [
    pytest.param([2, 3, 1], id="three"),
    pytest.param([1], id="a single step"),
    pytest.param([0, 2, 0, 0, 4, 0], id="empty ones between"),
    pytest.param([0, 0], id="all empty"),
    pytest.param([], id="none"),
]


def loop(flat: np.ndarray, lengths: list[int]) -> np.ndarray:
    padded = np.zeros((len(lengths), max(lengths, default=0), *flat.shape[1:]), flat.dtype)
    start = 0
    for row, length in enumerate(lengths):
        padded[row, :length] = flat[start : start + length]
        start += length
    return padded


@pytest.mark.parametrize(
    ("mode", "shape"),
    [*(("eager", shape) for shape in [(), (3,), (2, 1, 4)]), ("graph", ()), ("xla", (2, 1, 4))],
)
@pytest.mark.parametrize("lengths", LENGTHS)
def test_pad_equals_a_loop_and_unpad_reverses_it(
    lengths: list[int], shape: tuple[int, ...], mode: str
) -> None:
    flat = np.random.default_rng(0).normal(size=(sum(lengths), *shape)).astype(np.float32)
    sizes = {"max_length": max(lengths, default=0)}, {"total": sum(lengths)}
    lengths_ = np.array(lengths, np.int64)

    def there(flat: tf.Tensor) -> tf.Tensor:
        return pad(flat, lengths_, **({} if mode == "eager" else sizes[0]))

    def back(padded: tf.Tensor) -> tf.Tensor:
        return unpad(padded, lengths_, **({} if mode == "eager" else sizes[1]))

    if mode != "eager":
        there, back = (tf.function(f, jit_compile=mode == "xla") for f in (there, back))
    padded = there(tf.constant(flat))
    np.testing.assert_array_equal(padded, loop(flat, lengths))
    np.testing.assert_array_equal(back(padded), flat)


def _value(values: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.sin(values) * tf.constant(np.e, values.dtype))


def _gradient(function: Callable[[tf.Tensor], tf.Tensor], at: tf.Tensor) -> tf.Tensor:
    with tf.GradientTape() as tape:
        tape.watch(at)
        value = function(at)
    return tf.convert_to_tensor(tape.gradient(value, at))


def _numerical(function: Callable[[np.ndarray], float], at: np.ndarray) -> np.ndarray:
    gradient = np.zeros_like(at)
    for place in np.ndindex(at.shape):
        for sign in (1, -1):
            moved = at.copy()
            moved[place] += sign * 1e-5
            gradient[place] += sign * function(moved) / 2e-5
    return gradient


@pytest.mark.parametrize("lengths", [[2, 0, 3], [1], [4, 4]])
def test_gradients_equal_finite_differences(lengths: list[int]) -> None:
    random = np.random.default_rng(1)
    flat = random.normal(size=(sum(lengths), 2))
    padded = random.normal(size=(len(lengths), max(lengths) + 1, 2))
    for function, at in (
        (lambda x: _value(pad(x, lengths, max_length=max(lengths))), flat),
        (lambda x: _value(unpad(x, lengths, total=sum(lengths))), padded),
    ):
        found = _gradient(function, tf.constant(at))
        expected = _numerical(lambda x, f=function: float(f(tf.constant(x))), at)
        np.testing.assert_allclose(found, expected, 1e-6, 1e-8)
        for given in (
            {"jit_compile": True},
            {"input_signature": [tf.TensorSpec([None] * at.ndim)]},
        ):
            compiled = tf.function(lambda x, f=function: _gradient(f, x), **given)
            np.testing.assert_allclose(compiled(tf.constant(at, tf.float32)), found, 1e-5, 1e-6)
        # The gradient of the summed gradient is -e sin(x), the second derivative of e sin(x).
        again = _gradient(lambda x, f=function: tf.reduce_sum(_gradient(f, x)), tf.constant(at))
        np.testing.assert_allclose(again, np.where(found == 0, 0, -np.e * np.sin(at)), 1e-12)
    mask = sequence_mask(lengths, max(lengths) + 1).numpy()
    assert (np.array(found)[~mask] == 0.0).all()


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_invalid_lengths_are_rejected(mode: str) -> None:
    def checked(f: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
        return f if mode == "eager" else tf.function(f)

    flat, padded = tf.zeros((5, 2)), tf.zeros((2, 3, 2))
    for lengths, message in (
        ([3, 3], "lengths must add up"),
        ([-1, 6], "every length must be in"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            checked(lambda x, n=lengths: pad(x, n, max_length=6))(flat)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"every length must be in \[0, T_max"):
        checked(lambda x: pad(x, [4, 1], max_length=3))(flat)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"every length must be in \[0, T_max"):
        checked(lambda x: unpad(x, [4, 1]))(padded)
    with pytest.raises(ValueError, match=r"padded must have shape \[N, T_max, ...\], got \(2,\)"):
        unpad(tf.zeros(2), [1, 1])
    with pytest.raises(ValueError, match=r"lengths must have shape \[N\], got \(1, 1\)"):
        pad(flat, [[5]])


def test_statistics_ignore_padding() -> None:
    values = np.array([[1.0, 2.0, np.nan], [6.0, np.inf, -1e300]])
    mask = np.array([[True, True, False], [True, False, False]])
    assert masked_sum(values, mask) == 9
    assert masked_mean(values, mask) == 3
    assert masked_variance(values, mask) == (4 + 1 + 9) / 3
    np.testing.assert_array_equal(masked_sum(values, mask, 1), [3, 6])
    np.testing.assert_array_equal(masked_mean(values, mask, 0), [3.5, 2, 0])
    np.testing.assert_array_equal(masked_variance(values, mask, 1), [0.25, 0])


@pytest.mark.parametrize("function", [masked_sum, masked_mean, masked_variance])
def test_padding_gets_no_gradient_and_does_not_change_other_gradients(
    function: Callable[..., tf.Tensor],
) -> None:
    mask = np.array([[True, True, False], [True, False, False]])
    gradients = []
    for padding in (0.0, 7.0, np.nan, np.inf):
        values = tf.Variable(np.where(mask, [[1.0, 2.0, 0.0], [6.0, 0.0, 0.0]], padding))
        with tf.GradientTape() as tape:
            result = function(values, mask)
        gradients.append(tape.gradient(result, values).numpy())
        assert (gradients[-1][~mask] == 0).all()
        np.testing.assert_array_equal(gradients[-1], gradients[0])


def test_masks_that_are_all_false_return_zeros() -> None:
    for function in (masked_sum, masked_mean, masked_variance):
        assert function(np.array([np.nan, 1.0]), np.zeros(2, bool)) == 0
