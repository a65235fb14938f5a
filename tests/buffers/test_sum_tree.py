"""Sum trees, compared with cumulative sums."""

from __future__ import annotations

import numpy as np
import pytest

from eagerly.buffers.sum_tree import SumTree


def tree_of(values: np.ndarray) -> SumTree:
    tree = SumTree()
    tree.write(np.arange(len(values)), values)
    return tree


def test_find_returns_the_first_index_with_a_larger_cumulative_sum() -> None:
    tree = tree_of(np.array([1.0, 0.0, 2.0, 4.0, 0.0]))
    assert tree.total == 7
    sums = np.array([0.0, 0.5, 1.0, 2.5, 3.0, 6.99])
    assert tree.find(sums).tolist() == [0, 0, 2, 2, 3, 3]


@pytest.mark.parametrize("count", [1, 2, 3, 64, 1000])
def test_indices_are_found_in_proportion_to_their_values(count: int) -> None:
    values = np.random.default_rng(count).integers(0, 5, count).astype(np.float64)
    values[0] = 1
    every = np.arange(values.sum()) + 0.5  # one number per interval of length 1
    found = np.bincount(tree_of(values).find(every), minlength=count)
    np.testing.assert_array_equal(found, values)


def test_rounding_never_finds_an_index_whose_value_is_zero() -> None:
    random = np.random.default_rng(0)
    values = random.random(100) ** 20
    values[random.random(100) < 0.5] = 0
    tree = tree_of(values)
    beyond = np.array([tree.total, np.nextafter(tree.total, 2 * tree.total)])
    sums = np.concatenate([random.random(10_000) * tree.total, beyond, np.cumsum(values)])
    assert (values[tree.find(sums)] > 0).all()


def test_sums_depend_only_on_the_stored_values_bit_for_bit() -> None:
    random = np.random.default_rng(1)
    tree, values = SumTree(), np.zeros(300)
    for size in (2000, 300, 7, 1):
        places, new = random.integers(0, 300, size), random.random(size)
        tree.write(places, new)
        values[places] = new
    at_once = tree_of(values)
    assert tree.total == at_once.total
    sums = random.random(1000) * tree.total
    np.testing.assert_array_equal(tree.find(sums), at_once.find(sums))


def test_the_last_value_of_a_repeated_index_counts() -> None:
    tree = tree_of(np.ones(4))
    tree.write(np.array([2, 1, 2]), np.array([5.0, 3.0, 7.0]))
    assert tree.values(np.arange(4)).tolist() == [1, 3, 7, 1]
    assert tree.total == 12


def test_the_tree_grows_as_indices_are_written() -> None:
    tree = tree_of(np.ones(3))
    tree.write(np.array([9]), 2.0)
    assert (tree.total, tree.values(slice(12)).tolist()) == (5, [1, 1, 1, *[0] * 6, 2, 0, 0])
    tree.write(np.zeros(0, np.int64), 1.0)
    assert tree.total == 5
