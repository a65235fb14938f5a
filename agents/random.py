"""Random numbers for the train body that are the same in eager, graph and XLA mode.

TensorFlow's stateless normals differ between a compiled and an uncompiled program, and its Philox
takes XLA ten times as long as what follows. So the words are made here, by integer operations that
every mode does alike, and the normals from the words. Nothing is stored: the numbers follow from
the seed and the number of the update alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import tensorflow as tf

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def uniform_pairs(shape: Sequence[int], seed: int, first: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Draws pairs of independent uniforms in (0, 1] for K updates, exactly alike in every mode.

    The words of a pair are numbered by its update and its place in it: how updates are cut into
    calls changes nothing.

    Args:
        shape: `[K, ...]`.
        seed: Seed of the run, in [0, 2**63).
        first: Scalar int64, the number of the first update; they count modulo 2**32.
        dtype: Floating dtype of the result. The uniforms have 24 bits in every dtype.

    Returns:
        `[K, 2, ...]`.
    """
    updates = tf.cast(first + tf.range(shape[0], dtype=tf.int64), tf.uint32)
    places = tf.cast(tf.range(math.prod(shape[1:])), tf.uint32)
    words = threefry((seed % 2**32, seed // 2**32), updates[:, tf.newaxis], places)
    integers = tf.cast(_shifted_right(tf.stack(words, axis=1), 8), tf.int32)
    uniform = (tf.cast(integers, dtype) + 0.5) * 2.0**-24
    return tf.reshape(uniform, (shape[0], 2, *shape[1:]))


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
