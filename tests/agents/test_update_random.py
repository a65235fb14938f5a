"""Random numbers in updates are the same in every mode, normally distributed and independent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from eagerly import TD3, TD3Config
from eagerly.agents.inputs import Batch
from eagerly.agents.schedule import Phase
from eagerly.agents.update_random import UpdateRandom, threefry
from tests.agents.test_learner import buffer_of, learner_of
from tests.helpers import filled_buffer, spaces


def draw(shape: tuple[int, int] = (256, 6), *, seed: int = 0, update: int = 1) -> np.ndarray:
    return numbers(update, seed).normal(shape).numpy()


def numbers(update: int = 1, seed: int = 0, dtype: tf.DType = tf.float32) -> UpdateRandom:
    return UpdateRandom(seed, tf.constant(update, tf.int64), dtype)


@pytest.mark.parametrize(
    ("key", "counter", "words"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_returns_the_words_published_by_its_authors(
    key: tuple[int, int], counter: tuple[int, int], words: tuple[int, int]
) -> None:
    found = threefry(key, *(tf.constant(word, tf.uint32) for word in counter))
    assert tuple(int(word) for word in found) == words


@pytest.mark.parametrize("seed", [0, 2**32 - 1, 2**32, 2**63 - 1])
def test_seeds_up_to_the_largest_give_different_numbers(seed: int) -> None:
    assert not np.isclose(draw(seed=seed), draw(seed=(seed + 1) % 2**63)).all()


def recorded(batch: Batch, random: UpdateRandom, phase: Phase) -> Any:
    """Returns a few random numbers of an update as metrics."""
    drawn = {
        "plain": random.uniform((4,))[0],
        "other": random.uniform((4,), "other")[0],
        "normal": random.normal((4, 2), "normal")[1, 1],
        "pair": tf.cast(random.subset(2, 1000, "pair")[1], tf.float32),
    }
    return drawn, {}


@pytest.mark.parametrize("mode", ["eager", "xla"])
def test_random_numbers_differ_between_updates_and_do_not_depend_on_calls(mode: str) -> None:
    def drawn(*calls: int) -> np.ndarray:
        learner, buffer = learner_of(recorded, mode, seed=3), buffer_of()
        metrics = [learner.learn(buffer, updates)[0] for updates in calls]
        return np.array([np.concatenate([each[name] for each in metrics]) for name in metrics[0]])

    together = drawn(9)
    assert len(together) == 4
    assert all(len(np.unique(values)) == 9 for values in together)
    cuts = (1, 2, 6) if mode == "eager" else (3, 3, 3)  # calls of equal length share one program
    np.testing.assert_array_equal(together, drawn(*cuts))
    alone = [numbers(1 + k, 3) for k in range(9)]
    np.testing.assert_array_equal(together[0], [each.uniform((4,))[0] for each in alone])
    np.testing.assert_array_equal(together[1], [each.uniform((4,), "other")[0] for each in alone])


def test_a_name_can_be_drawn_only_once_per_update_and_names_are_independent() -> None:
    random = numbers()
    first, other = random.uniform((500,)), random.uniform((500,), "other")
    assert not np.intersect1d(first, other).size
    assert abs(np.corrcoef(first, other)[0, 1]) < 0.2
    with pytest.raises(ValueError, match=r"random numbers named 'other' twice.*different name"):
        random.normal((3,), "other")
    with pytest.raises(ValueError, match="named '' twice"):
        random.uniform((3,))


def test_a_subset_has_distinct_members_and_all_pairs_are_equally_likely() -> None:
    def subset(update: tf.Tensor) -> tf.Tensor:
        return UpdateRandom(0, update, tf.float32).subset(2, 4)

    drawn = tf.function(subset, autograph=False)
    pairs = [tuple(sorted(drawn(tf.constant(k, tf.int64)).numpy())) for k in range(1, 601)]
    found, counts = np.unique(pairs, axis=0, return_counts=True)
    assert len(found) == 6
    assert (found[:, 0] < found[:, 1]).all()
    assert counts.min() > 100 - 4 * np.sqrt(100)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_numbers_are_the_same_in_eager_graph_and_xla(dtype: tf.DType) -> None:
    def body(update: tf.Tensor) -> tf.Tensor:
        return UpdateRandom(7, update, dtype).normal((64, 3))

    update = tf.constant(5, tf.int64)
    eager = body(update)
    tolerance = {tf.float32: 2e-6, tf.float64: 1e-13}[dtype]
    for compiled in (tf.function(body), tf.function(body, jit_compile=True)):
        np.testing.assert_allclose(compiled(update), eager, rtol=0, atol=tolerance)


def test_numbers_depend_on_seed_and_update() -> None:
    np.testing.assert_array_equal(draw(), draw())
    assert not np.isclose(draw(), draw(update=2)).any(axis=0).all()
    assert not np.isclose(draw(), draw(seed=1)).any(axis=0).all()


def test_rows_and_dimensions_are_drawn_independently() -> None:
    values = draw((1000, 3))
    assert len(np.unique(values)) > 2990
    assert np.abs(np.corrcoef(values.T) - np.eye(3)).max() < 0.15


def test_numbers_are_standard_normal() -> None:
    values = draw((100_000, 2)).ravel()
    assert np.isfinite(values).all()
    # The tolerances are four standard errors of the mean, of the variance, and of the share of
    # numbers within 1 and 2 standard deviations.
    assert abs(values.mean()) < 4 / np.sqrt(values.size)
    assert abs(values.var() - 1) < 4 * np.sqrt(2 / values.size)
    for deviations, share in ((1, 0.682689), (2, 0.954500)):
        error = np.sqrt(share * (1 - share) / values.size)
        assert abs((np.abs(values) < deviations).mean() - share) < 4 * error


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_an_update_cannot_read_the_number_of_updates_made(mode: str) -> None:
    # A traced program would contain the number as a constant, so every update would use it again.
    class Keyed(TD3):
        def target(self, batch: Batch, next_action: tf.Tensor, random: UpdateRandom) -> Any:
            return super().target(batch, next_action, random) + float(self.updates)

    agent = Keyed(*spaces(), TD3Config(hidden_sizes=(4,), batch_size=4, mode=mode), seed=0)
    with pytest.raises(RuntimeError, match=r"phase\.update, not self\.updates"):
        agent.train(filled_buffer(), 2)
    assert agent.updates == 0
