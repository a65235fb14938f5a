"""Recurrent cells over whole sequences, with a single matrix product for the kernel gradient.

Differentiating a loop would accumulate the gradient of the recurrent kernel with a small matrix
product at each step. Here, the backward loop only computes gradients with respect to the cell's
inputs. The kernel gradient is one product over all steps at the end. This works in eager, graph and
XLA mode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

# Maps three arguments to the next state: the preactivations from the inputs `[B, G]`, the
# preactivations from the state `[B, G]`, and the state. A state is a list of arrays `[B, H]` that
# begins with the output.
Cell = Callable[[tf.Tensor, tf.Tensor, list[tf.Tensor]], list[tf.Tensor]]


def lstm_cell(inputs: tf.Tensor, recurrent: tf.Tensor, state: list[tf.Tensor]) -> list[tf.Tensor]:
    """Computes one LSTM step (Hochreiter and Schmidhuber 1997, Gers et al. 2000).

    Args:
        inputs: `[B, 4 H]`, preactivations from the inputs, for input gate, forget gate, candidate
            and output gate, in this order.
        recurrent: `[B, 4 H]`, preactivations from the state.
        state: Output and cell, each `[B, H]`.
    """
    # One tanh computes all gates, because sigmoid(x) = (1 + tanh(x / 2)) / 2. XLA vectorizes a
    # single tanh, but not functions of slices, which would take twice as long per step.
    units = state[0].shape[-1]
    scale = tf.constant(np.repeat([0.5, 0.5, 1.0, 0.5], units), inputs.dtype)
    shift = tf.constant(np.repeat([0.5, 0.5, 0.0, 0.5], units), inputs.dtype)
    gates = tf.tanh((inputs + recurrent) * scale) * scale + shift
    enter, keep, candidate, show = tf.split(gates, 4, axis=-1)
    cell = keep * state[1] + enter * candidate
    return [show * tf.tanh(cell), cell]


def gru_cell(inputs: tf.Tensor, recurrent: tf.Tensor, state: list[tf.Tensor]) -> list[tf.Tensor]:
    """Computes one GRU step (Cho et al. 2014).

    As in Keras and cuDNN, the reset gate acts after the product with the recurrent kernel.

    Args:
        inputs: `[B, 3 H]`, preactivations from the inputs, for update gate, reset gate and
            candidate, in this order.
        recurrent: `[B, 3 H]`, preactivations from the state.
        state: The output `[B, H]`.
    """
    (update, reset, candidate), (update_, reset_, candidate_) = (
        tf.split(part, 3, axis=-1) for part in (inputs, recurrent)
    )
    keep = tf.sigmoid(update + update_)
    new = tf.tanh(candidate + tf.sigmoid(reset + reset_) * candidate_)
    return [keep * state[0] + (1.0 - keep) * new]


def run(
    cell: Cell, inputs: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor, initial: list[tf.Tensor]
) -> tf.Tensor:
    """Runs a cell over sequences.

    Args:
        cell: `lstm_cell` or `gru_cell`.
        inputs: `[T, B, G]`, the preactivations from the inputs; T must be static.
        kernel: `[H, G]`, multiplied with the output of the previous step.
        bias: `[G]`, added to that product.
        initial: The initial state, `[B, H]` each.

    Returns:
        The outputs `[T, B, H]`.
    """

    @tf.custom_gradient
    def outputs(
        inputs: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor, *initial: tf.Tensor
    ) -> tuple[tf.Tensor, Any]:
        states = _forward(cell, inputs, kernel, bias, [*initial])
        return states[0], lambda upstream: _backward(
            cell, inputs, kernel, bias, [*initial], states, upstream
        )

    return outputs(inputs, kernel, bias, *initial)


def _forward(
    cell: Cell, inputs: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor, initial: list[tf.Tensor]
) -> list[tf.Tensor]:
    """Returns the states after each step, `[T, B, H]` each."""
    steps = inputs.shape[0]
    arrays = [_array(steps, part) for part in initial]

    def step(t: tf.Tensor, state: list[tf.Tensor], arrays: list[Any]) -> tuple[Any, ...]:
        state = cell(inputs[t], tf.matmul(state[0], kernel) + bias, state)
        return t + 1, state, [a.write(t, part) for a, part in zip(arrays, state, strict=True)]

    *_, arrays = tf.while_loop(
        lambda t, *_: t < steps, step, (tf.constant(0), initial, arrays), maximum_iterations=steps
    )
    return [_stacked(array, inputs, part) for array, part in zip(arrays, initial, strict=True)]


def _backward(
    cell: Cell,
    inputs: tf.Tensor,
    kernel: tf.Tensor,
    bias: tf.Tensor,
    initial: list[tf.Tensor],
    states: list[tf.Tensor],
    upstream: tf.Tensor,
) -> tuple[tf.Tensor, ...]:
    """Returns the gradients of inputs, kernel, bias and initial state."""
    steps = inputs.shape[0]
    before = [
        tf.concat([part[tf.newaxis], after[:-1]], axis=0)
        for part, after in zip(initial, states, strict=True)
    ]
    recurrent = tf.tensordot(before[0], kernel, 1) + bias
    of_inputs, of_recurrent = _array(steps, inputs[0]), _array(steps, inputs[0])

    def step(
        t: tf.Tensor, of_state: list[tf.Tensor], of_inputs: Any, of_recurrent: Any
    ) -> tuple[Any, ...]:
        fed = [inputs[t], recurrent[t], *(part[t] for part in before)]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(fed)
            after = cell(fed[0], fed[1], fed[2:])
        of_state = [of_state[0] + upstream[t], *of_state[1:]]
        # The previous output of an LSTM gets no gradient here: it acts only through `recurrent`.
        from_inputs, from_recurrent, *of_before = tape.gradient(
            after, fed, of_state, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        of_before[0] += tf.matmul(from_recurrent, kernel, transpose_b=True)
        of_inputs = of_inputs.write(t, from_inputs)
        return t - 1, of_before, of_inputs, of_recurrent.write(t, from_recurrent)

    zeros = [tf.zeros_like(part) for part in initial]
    first = tf.constant(steps - 1), zeros, of_inputs, of_recurrent
    _, of_initial, of_inputs, of_recurrent = tf.while_loop(
        lambda t, *_: t >= 0, step, first, maximum_iterations=steps
    )
    stacked = _stacked(of_recurrent, inputs, inputs[0])
    flat = tf.reshape(stacked, [-1, stacked.shape[-1]])
    outputs = tf.reshape(before[0], [-1, kernel.shape[0]])
    return (
        _stacked(of_inputs, inputs, inputs[0]),
        tf.matmul(outputs, flat, transpose_a=True),
        tf.reduce_sum(flat, axis=0),
        *of_initial,
    )


def _array(steps: int, like: tf.Tensor) -> tf.TensorArray:
    return tf.TensorArray(like.dtype, size=steps, element_shape=like.shape)


def _stacked(array: tf.TensorArray, inputs: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(array.stack(), [inputs.shape[0], *like.shape])
