"""The noise of the train body: the same in every mode, normal, and drawn for every element."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from eagerly.agents.random import standard_normal, threefry, uniform_pairs


def draw(shape: tuple[int, int] = (256, 6), *, seed: int = 0, update: int = 1) -> np.ndarray:
    first = tf.constant(update, tf.int64)
    return standard_normal(uniform_pairs((1, *shape), seed, first, tf.float32)[0]).numpy()


@pytest.mark.parametrize(
    ("key", "counter", "words"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_gives_the_words_that_its_authors_publish(
    key: tuple[int, int], counter: tuple[int, int], words: tuple[int, int]
) -> None:
    found = threefry(key, *(tf.constant(word, tf.uint32) for word in counter))
    assert tuple(int(word) for word in found) == words


@pytest.mark.parametrize("seed", [0, 2**32 - 1, 2**32, 2**63 - 1])
def test_every_seed_up_to_the_largest_has_numbers_of_its_own(seed: int) -> None:
    assert not np.isclose(draw(seed=seed), draw(seed=(seed + 1) % 2**63)).all()


def test_the_numbers_of_an_update_do_not_depend_on_the_call_that_draws_them() -> None:
    together = uniform_pairs((7, 5, 3), 3, tf.constant(11, tf.int64), tf.float32)
    for k in range(7):
        alone = uniform_pairs((1, 5, 3), 3, tf.constant(11 + k, tf.int64), tf.float32)
        np.testing.assert_array_equal(together[k], alone[0])


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_it_is_the_same_in_eager_graph_and_xla(dtype: tf.DType) -> None:
    def body(update: tf.Tensor) -> tf.Tensor:
        return standard_normal(uniform_pairs((2, 64, 3), 7, update, dtype)[1])

    update = tf.constant(5, tf.int64)
    eager = body(update)
    tolerance = {tf.float32: 2e-6, tf.float64: 1e-13}[dtype]
    for compiled in (tf.function(body), tf.function(body, jit_compile=True)):
        np.testing.assert_allclose(compiled(update), eager, rtol=0, atol=tolerance)


def test_it_follows_from_seed_and_update() -> None:
    np.testing.assert_array_equal(draw(), draw())
    assert not np.isclose(draw(), draw(update=2)).any(axis=0).all()
    assert not np.isclose(draw(), draw(seed=1)).any(axis=0).all()


def test_every_row_and_dimension_has_its_own_draw() -> None:
    values = draw((1000, 3))
    assert len(np.unique(values)) > 2990
    assert np.abs(np.corrcoef(values.T) - np.eye(3)).max() < 0.15


def test_it_is_standard_normal() -> None:
    values = draw((100_000, 2)).ravel()
    assert np.isfinite(values).all()
    # Four standard errors of mean, variance, and of the share within one and two deviations.
    assert abs(values.mean()) < 4 / np.sqrt(values.size)
    assert abs(values.var() - 1) < 4 * np.sqrt(2 / values.size)
    for deviations, share in ((1, 0.682689), (2, 0.954500)):
        error = np.sqrt(share * (1 - share) / values.size)
        assert abs((np.abs(values) < deviations).mean() - share) < 4 * error
