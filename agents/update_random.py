"""Random numbers for the train body that are the same in eager, graph and XLA mode.

TensorFlow's stateless normals differ between a compiled and an uncompiled program, and its Philox
takes XLA ten times as long as what follows. So the words are made here, by integer operations that
every mode does alike, and the normals from the words. Nothing is stored: the numbers follow from
the seed and the number of the update alone.
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

    Each name has numbers of its own, independent of those of other names, updates and seeds. They
    follow from these three alone: they are the same in every mode, and however updates are cut into
    calls. (The last bits of normals depend on the mode, as those of logarithms do.) Names keep
    draws apart, so that none can repeat another's numbers by mistake; a single draw needs none.

    Args:
        seed: Seed of the run, in [0, 2**63).
        update: Scalar int64, the number of the update; they count modulo 2**32.
        dtype: Floating dtype of the numbers.
    """

    def __init__(self, seed: int, update: tf.Tensor, dtype: tf.DType) -> None:
        self._seed, self._update, self._dtype = seed, update, dtype
        self._names: set[str] = set()

    def uniform_pairs(self, shape: Sequence[int], name: str = "") -> tf.Tensor:
        """Draws pairs of independent uniforms in (0, 1], `[2, *shape]`, of 24 bits each.

        Raises:
            ValueError: If the update has drawn numbers of this name before.
        """
        if name in self._names:
            raise ValueError(
                f"an update drew random numbers named {name!r} twice, which would be the same "
                "ones: give each draw a name of its own"
            )
        self._names.add(name)
        key = self._seed ^ _number_of(name)
        places = tf.cast(tf.range(math.prod(shape)), tf.uint32)
        words = threefry((key % 2**32, key // 2**32), tf.cast(self._update, tf.uint32), places)
        integers = tf.cast(_shifted_right(tf.stack(words), 8), tf.int32)
        uniform = (tf.cast(integers, self._dtype) + 0.5) * 2.0**-24
        return tf.reshape(uniform, (2, *shape))

    def uniform(self, shape: Sequence[int], name: str = "") -> tf.Tensor:
        """Draws independent uniforms in (0, 1] of a shape."""
        return self.uniform_pairs(shape, name)[0]

    def normal(self, shape: Sequence[int], name: str = "") -> tf.Tensor:
        """Draws independent standard normals of a shape."""
        return standard_normal(self.uniform_pairs(shape, name))

    def subset(self, count: int, of: int, name: str = "") -> tf.Tensor:
        """Draws `count` different numbers of 0 to `of - 1`, `[count]` int32, in random order."""
        return tf.math.top_k(self.uniform((of,), name), count).indices


def _number_of(name: str) -> int:
    """Returns 64 bits of a name; none of the empty one, whose numbers are the seed's own."""
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest() if name else b""
    return int.from_bytes(digest, "little")


def standard_normal(uniform: tf.Tensor) -> tf.Tensor:
    """Makes independent standard normals `[...]` of pairs of uniforms `[2, ...]` (Box-Muller).

    To be called for one update at a time: the last bit of a logarithm may depend on where in an
    array it is taken.
    """
    radius = tf.sqrt(-2.0 * tf.math.log(uniform[0]))
    return radius * tf.cos(2.0 * math.pi * uniform[1])


def threefry(
    key: tuple[int, int], left: tf.Tensor, right: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Scrambles counters by Threefry-2x32 of 20 rounds.

    Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", section 4.2.

    Args:
        key: Two words below 2**32.
        left: The first word of each counter, uint32.
        right: The second one, of a shape that broadcasts with the first one's.

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
