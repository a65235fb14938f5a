"""Random numbers for the train body that are the same in eager, graph and XLA mode.

TensorFlow's stateless normals differ between compiled and uncompiled programs. Under XLA, its
Philox generator takes ten times as long as the code below. Here, integer operations, which give
identical results in every mode, produce random words, from which normals are computed. No state is
stored: the numbers follow from the seed, the update number and the name of the draw.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import tensorflow as tf

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


class UpdateRandom:
    """The random numbers of one update, drawn by name.

    They depend only on the seed, the update and the name of the draw. They are therefore the same
    in every mode, and however updates are divided into calls. (The last bits of normals depend on
    the mode, as do those of logarithms.) Different names give draws different numbers; drawing one
    name twice raises an error. A single draw needs no name.

    Args:
        seed: Seed of the run, in [0, 2**63).
        update: Scalar int64, the number of the update, used modulo 2**32.
        dtype: Floating-point dtype of the numbers.
        part: Index of the part of the batch for which numbers are drawn. The first axis of the
            shapes is then the rows of that part.
    """

    def __init__(self, seed: int, update: tf.Tensor, dtype: tf.DType, part: int = 0) -> None:
        self._seed, self._update, self._dtype, self._part = seed, update, dtype, part
        self._names: set[str] = set()

    def part(self, index: int) -> UpdateRandom:
        """Returns the random numbers of one of several equal parts of the batch.

        Those of all parts together are those of the whole batch.
        """
        return UpdateRandom(self._seed, self._update, self._dtype, index)

    def uniform_pairs(self, shape: Sequence[int], name: str = "") -> tf.Tensor:
        """Returns pairs of independent uniforms in (0, 1], `[2, *shape]`, each with 24 bits.

        Raises:
            ValueError: If the update has already drawn numbers with this name.
        """
        return self._drawn(shape, name, self._part)

    def _drawn(self, shape: Sequence[int], name: str, part: int) -> tf.Tensor:
        if name in self._names:
            raise ValueError(
                f"an update drew random numbers named {name!r} twice, which would be identical: "
                "give each draw a different name"
            )
        self._names.add(name)
        key = self._seed ^ _number_of(name)
        first = part * math.prod(shape)
        places = tf.cast(tf.range(first, first + math.prod(shape)), tf.uint32)
        words = threefry((key % 2**32, key // 2**32), tf.cast(self._update, tf.uint32), places)
        integers = tf.cast(_shifted_right(tf.stack(words), 8), tf.int32)
        uniform = (tf.cast(integers, self._dtype) + 0.5) * 2.0**-24
        return tf.reshape(uniform, (2, *shape))

    def uniform(self, shape: Sequence[int], name: str = "") -> tf.Tensor:
        """Returns independent uniforms in (0, 1] of the given shape."""
        return self.uniform_pairs(shape, name)[0]

    def normal(self, shape: Sequence[int], name: str = "") -> tf.Tensor:
        """Returns independent standard normals of the given shape."""
        return standard_normal(self.uniform_pairs(shape, name))

    def subset(self, count: int, of: int, name: str = "") -> tf.Tensor:
        """Returns `count` distinct integers in [0, of), `[count]` int32, in random order.

        They are the same for all parts of the batch.
        """
        return tf.math.top_k(self._drawn((of,), name, 0)[0], count).indices


def _number_of(name: str) -> int:
    """Returns a 64-bit hash of a name; 0 for the empty name, whose key is the seed itself."""
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest() if name else b""
    return int.from_bytes(digest, "little")


def standard_normal(uniform: tf.Tensor) -> tf.Tensor:
    """Returns independent standard normals `[...]` from pairs of uniforms `[2, ...]` (Box-Muller).

    Call it for one update at a time: the last bit of a logarithm can depend on its position in an
    array.
    """
    radius = tf.sqrt(-2.0 * tf.math.log(uniform[0]))
    return radius * tf.cos(2.0 * math.pi * uniform[1])


def threefry(
    key: tuple[int, int], left: tf.Tensor, right: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Scrambles counters with 20-round Threefry-2x32.

    Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", section 4.2.

    Args:
        key: Two words below 2**32.
        left: The first word of each counter, uint32.
        right: The second word of each counter, uint32, broadcastable with `left`.

    Returns:
        Two words for each counter.
    """
    keys = [tf.constant(word, tf.uint32) for word in (*key, key[0] ^ key[1] ^ _PARITY)]
    left, right = left + keys[0], right + keys[1]
    for step in range(1, 6):
        for distance in _ROTATIONS[(step - 1) % 2]:
            left += right
            rotated = tf.bitwise.left_shift(right, tf.constant(distance, tf.uint32))
            right = tf.bitwise.bitwise_or(rotated, _shifted_right(right, 32 - distance))
            right = tf.bitwise.bitwise_xor(right, left)
        left += keys[step % 3]
        right += keys[(step + 1) % 3] + tf.constant(step, tf.uint32)
    return left, right


def _shifted_right(word: tf.Tensor, distance: int) -> tf.Tensor:
    return tf.bitwise.right_shift(word, tf.constant(distance, tf.uint32))
