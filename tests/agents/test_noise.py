"""The noise of the train body: the same in every mode, normal, and drawn for every element."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from eagerly.agents.noise import standard_normal


def draw(shape: tuple[int, int] = (256, 6), *, seed: int = 0, update: int = 1) -> np.ndarray:
    return standard_normal(shape, seed, tf.constant(update, tf.int64), tf.float32).numpy()


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_it_is_the_same_in_eager_graph_and_xla(dtype: tf.DType) -> None:
    def body(update: tf.Tensor) -> tf.Tensor:
        return standard_normal((64, 3), 7, update, dtype)

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
