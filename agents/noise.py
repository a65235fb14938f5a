"""Random numbers for the train body that are the same in eager, graph and XLA mode.

TensorFlow's stateless normals differ between a compiled and an uncompiled program; its raw
Philox words do not. So the normals are made here from the words. Nothing is stored: the numbers
follow from the seed and the number of the update alone.
"""

from __future__ import annotations

import math

import tensorflow as tf


def standard_normal(
    shape: tuple[int, int], seed: int, update: tf.Tensor, dtype: tf.DType
) -> tf.Tensor:
    """Draws independent standard normals by the Box-Muller transform.

    Args:
        shape: Shape `[B, A]` of the result.
        seed: Seed of the run, in [0, 2**63).
        update: Scalar int64, the number of the gradient step; another update, other numbers.
        dtype: Floating dtype of the result. The underlying uniforms have 24 bits in every dtype.
    """
    words = tf.random.stateless_uniform(
        (2, *shape),
        seed=tf.stack([tf.constant(seed, tf.int64), update]),
        minval=None,
        maxval=None,
        dtype=tf.uint32,
        alg="philox",
    )
    integers = tf.cast(tf.bitwise.right_shift(words, tf.constant(8, tf.uint32)), tf.int32)
    uniform = (tf.cast(integers, dtype) + 0.5) * 2.0**-24  # in (0, 1]: the logarithm is finite
    radius = tf.sqrt(-2.0 * tf.math.log(uniform[0]))
    return radius * tf.cos(2.0 * math.pi * uniform[1])
