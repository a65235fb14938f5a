"""A sum tree: numbers in the leaves of a binary tree, and in every node the sum of those below."""

from __future__ import annotations

import numpy as np


class SumTree:
    """Keeps non-negative numbers by place, and finds the place where their running sum is reached.

    Both take O(log n) for each number, for many numbers at once. A node is always computed anew as
    the sum of its two children, never corrected by a difference: so the tree is a function of its
    leaves, and equal leaves give equal bits however they came about.

    The tree grows as places are written. It has a power of two of leaves and takes 16 bytes for
    each.
    """

    def __init__(self) -> None:
        self._nodes = np.zeros(2)  # node i has the children 2 i and 2 i + 1; node 0 is not used

    @staticmethod
    def bytes_of(count: int) -> int:
        """Returns the memory that a tree of so many places takes."""
        return 16 << (count - 1).bit_length()

    @property
    def _size(self) -> int:
        return len(self._nodes) // 2

    @property
    def total(self) -> float:
        """The sum of all numbers."""
        return float(self._nodes[1])

    def values(self, places: np.ndarray | slice) -> np.ndarray:
        """Returns the numbers at these places, float64; 0 where none was written."""
        return self._nodes[self._size :][places]

    def write(self, places: np.ndarray, values: np.ndarray | float) -> None:
        """Writes numbers.

        Args:
            places: `[n]` integers, at least 0. Of those that repeat, the last one counts.
            values: `[n]`, or one for all, at least 0 and finite.
        """
        if not len(places):
            return
        self._grow(int(places.max()) + 1)
        nodes, parents = self._nodes, places + self._size
        nodes[parents] = values
        level = self._size
        while level > 1:
            level //= 2
            if len(parents) >= level:  # all nodes of a level are fewer
                self._sum_level(level)
                continue
            parents = parents >> 1
            nodes[parents] = nodes[2 * parents] + nodes[2 * parents + 1]

    def find(self, sums: np.ndarray) -> np.ndarray:
        """Finds the first place up to which the numbers add up to more than `sums`.

        Args:
            sums: `[n]` float64 in [0, total).

        Returns:
            `[n]` places. None of them holds 0, however sums are rounded.
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
        """Makes room for the places below `count`."""
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
        """Computes all nodes of a level, which are `level` many, from those below."""
        children = self._nodes[2 * level : 4 * level].reshape(-1, 2)
        self._nodes[level : 2 * level] = children.sum(axis=1)
