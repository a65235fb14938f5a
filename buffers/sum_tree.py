"""A sum tree: a binary tree of numbers, in which each inner node is the sum of its children."""

from __future__ import annotations

import numpy as np


class SumTree:
    """Stores non-negative numbers by index, and looks up indices by cumulative sum.

    Writing and looking up are vectorized and take O(log n) per number. A node is always recomputed
    as the sum of its two children, never updated by a difference. All sums therefore depend only on
    the current leaves, bit for bit, and not on earlier writes.

    The tree grows as indices are written. Its number of leaves is a power of two. It takes 16 bytes
    per leaf, including the inner nodes.
    """

    def __init__(self) -> None:
        self._nodes = np.zeros(2)  # node i has children 2 i and 2 i + 1; node 0 is unused

    @staticmethod
    def bytes_of(count: int) -> int:
        """Returns the memory of a tree for `count` numbers, in bytes."""
        return 16 << (count - 1).bit_length()

    @property
    def _size(self) -> int:
        return len(self._nodes) // 2

    @property
    def total(self) -> float:
        """The sum of all numbers."""
        return float(self._nodes[1])

    def values(self, places: np.ndarray | slice) -> np.ndarray:
        """Returns the float64 numbers at the given indices, 0 where none was written."""
        return self._nodes[self._size :][places]

    def write(self, places: np.ndarray, values: np.ndarray | float) -> None:
        """Writes numbers and updates all sums above them.

        Args:
            places: `[n]` integers, at least 0. If an index repeats, its last value counts.
            values: `[n]` or a scalar, non-negative and finite.
        """
        if not len(places):
            return
        self._grow(int(places.max()) + 1)
        nodes, parents = self._nodes, places + self._size
        nodes[parents] = values
        level = self._size
        while level > 1:
            level //= 2
            if len(parents) >= level:  # recomputing the whole level is cheaper
                self._sum_level(level)
                continue
            parents = parents >> 1
            nodes[parents] = nodes[2 * parents] + nodes[2 * parents + 1]

    def find(self, sums: np.ndarray) -> np.ndarray:
        """Finds the first indices whose cumulative sums exceed `sums`.

        Args:
            sums: `[n]` float64 in [0, total).

        Returns:
            `[n]` indices. The numbers stored there are never 0, even if sums are rounded.
        """
        nodes, left = self._nodes, sums.copy()
        node = np.ones(len(sums), np.int64)
        for _ in range(self._size.bit_length() - 1):
            node *= 2
            below = nodes[node]
            is_right = (left >= below) & (nodes[node + 1] > 0)
            left -= np.where(is_right, below, 0.0)
            node += is_right
        return node - self._size

    def _grow(self, count: int) -> None:
        """Grows the tree to at least `count` leaves."""
        size = self._size
        if count <= size:
            return
        leaves = self._nodes[size:]
        larger = self.bytes_of(count) // 16
        self._nodes = np.zeros(2 * larger)
        self._nodes[larger : larger + size] = leaves
        level = larger
        while level > 1:
            level //= 2
            self._sum_level(level)

    def _sum_level(self, level: int) -> None:
        """Recomputes the level of the tree that has `level` nodes, from its children."""
        children = self._nodes[2 * level : 4 * level].reshape(-1, 2)
        self._nodes[level : 2 * level] = children.sum(axis=1)
