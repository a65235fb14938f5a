"""Tracing a program leaves no custom gradients in TensorFlow's registry, and removes no others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tensorflow as tf
from tensorflow.python.framework import ops

from eagerly.networks.tracing import traced


def gradients() -> set[str]:
    """Returns the names of the gradients registered by TensorFlow."""
    return set(ops.gradient_registry.list())


def in_a_loop(x: tf.Tensor) -> tf.Tensor:
    return tf.while_loop(lambda n, _: n < 2, lambda n, y: (n + 1, tf.nn.silu(y)), (0, x))[1]


def in_a_branch(x: tf.Tensor) -> tf.Tensor:
    return tf.cond(tf.reduce_all(x > 0.0), lambda: tf.nn.silu(x), lambda: x)


def program(function: Callable[[tf.Tensor], tf.Tensor]) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns a function that computes the derivative of a given function."""

    def slope(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        return tape.gradient(y, x)

    return slope


def test_traced_programs_leave_no_custom_gradients_registered() -> None:
    spec, x = tf.TensorSpec((1,), tf.float32), tf.constant([2.0])
    for function in (tf.nn.silu, in_a_loop, in_a_branch):
        before = gradients()
        slope = traced(program(function), spec)
        assert gradients() == before, function
        tf.debugging.assert_near(slope(x), program(function)(x))


@pytest.mark.parametrize("function", [tf.nn.silu, in_a_loop])
def test_the_gradient_of_a_function_shared_by_two_programs_stays_registered(
    function: Callable[[tf.Tensor], tf.Tensor],
) -> None:
    shared = tf.function(function)
    spec, x = tf.TensorSpec((1,), tf.float32), tf.constant([2.0])
    forward = traced(lambda x: shared(x), spec)
    slope = traced(program(shared), spec)  # reuses the trace of `shared` from `forward`
    tf.debugging.assert_near(forward(x), function(x))
    tf.debugging.assert_near(slope(x), program(function)(x))
    tf.debugging.assert_near(program(shared)(x), program(function)(x))
