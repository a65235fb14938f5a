"""Recurrent cores (LSTM, GRU and causal self-attention) for whole sequences and single steps.

Each core maps a sequence of features to a sequence of outputs. An output depends only on its step
and earlier ones. `call` processes whole sequences; `step` processes the next step, given a state.
Both return the same outputs. A state is a list of arrays `[N, ...]`, all zeros at the beginning of
an episode.
"""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from eagerly.networks.initializers import initial_values, weight_seeds
from eagerly.networks.layers import Linear, built
from eagerly.networks.recurrence import gru_cell, lstm_cell, run
from eagerly.policies.architecture import PROJECTIONS
from eagerly.policies.operations import LAYER_NORM_EPSILON


class RecurrentCore(keras.layers.Layer):
    """An LSTM or GRU with the weights of the Keras layers, in the same order.

    Initial values are also those of Keras: Glorot uniform for the input kernel and orthogonal for
    the recurrent kernel. Biases are 0, or 1 for an LSTM's forget gate (Jozefowicz et al. 2015).

    Args:
        kind: "lstm" or "gru".
        inputs: Number of features.
        units: H, the number of outputs.
        seed: Seed of the weights.
        dtype: Dtype of weights and products.
    """

    def __init__(self, kind: str, inputs: int, units: int, *, seed: int, dtype: str) -> None:
        super().__init__(name="memory", dtype=dtype, autocast=False)
        self._cell, gates = {"lstm": (lstm_cell, 4), "gru": (gru_cell, 3)}[kind]
        self.units, self._parts = units, 2 if kind == "lstm" else 1
        input_seed, state_seed = weight_seeds(seed, 2)
        glorot = keras.initializers.GlorotUniform(seed=input_seed)
        orthogonal = keras.initializers.Orthogonal(seed=state_seed)
        self.kernel = self.add_weight((inputs, gates * units), glorot, name="kernel")
        self.recurrent_kernel = self.add_weight(
            (units, gates * units), orthogonal, name="recurrent_kernel"
        )
        first = np.zeros(gates * units)
        if kind == "lstm":
            first[units : 2 * units] = 1.0
        self.bias = self.add_weight(name="bias", **initial_values(first))
        # Keras' GRU has a separate recurrent bias, which the reset gate multiplies.
        self.recurrent_bias = (
            self.add_weight(name="recurrent_bias", shape=first.shape, initializer="zeros")
            if kind == "gru"
            else None
        )
        self.built = True

    def call(self, features: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
        """Maps features `[B, S, I]` to outputs `[B, S, H]`.

        `valid` `[B, S]` is ignored: padding comes last and cannot affect earlier steps.
        """
        inputs = tf.transpose(tf.matmul(features, self.kernel) + self.bias, [1, 0, 2])
        size = features.shape[0] or tf.shape(features)[0]
        outputs = run(
            self._cell,
            inputs,
            tf.convert_to_tensor(self.recurrent_kernel),
            self._recurrent_bias(),
            [tf.zeros([size, self.units], inputs.dtype)] * self._parts,
        )
        return tf.transpose(outputs, [1, 0, 2])

    def step(
        self, features: tf.Tensor, state: list[tf.Tensor]
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Maps features `[N, I]` and a state to outputs `[N, H]` and the next state."""
        inputs = tf.matmul(features, self.kernel) + self.bias
        recurrent = tf.matmul(state[0], self.recurrent_kernel) + self._recurrent_bias()
        state = self._cell(inputs, recurrent, state)
        return state[0], state

    def _recurrent_bias(self) -> tf.Tensor:
        if self.recurrent_bias is None:
            return tf.zeros_like(self.bias)
        return tf.convert_to_tensor(self.recurrent_bias)


class AttentionCore(keras.layers.Layer):
    """Causal self-attention over the last T steps, with a residual connection.

    Computes x + W softmax(q k / √d + b) v, where q, k and v are projections of the normalized x
    (Vaswani et al. 2017, with the normalization first as in Xiong et al. 2020). The bias b is
    learned for each head and time lag (Raffel et al. 2020), so outputs do not depend on when the
    episode began.

    Args:
        units: H, the number of features and of outputs.
        heads: Number of heads, a divisor of H.
        length: T, the number of visible steps, including the current one.
        seed: Seed of the weights.
        dtype: Dtype of weights and products.
    """

    def __init__(self, units: int, heads: int, length: int, *, seed: int, dtype: str) -> None:
        super().__init__(name="memory", dtype=dtype, autocast=False)
        self.units, self._heads, self._length = units, heads, length
        norm = keras.layers.LayerNormalization(
            epsilon=LAYER_NORM_EPSILON, name="memory_norm", dtype=dtype
        )
        self._norm = built(norm, units)
        parts: dict[str, Any] = {"initializer": "glorot_uniform", "dtype": dtype}
        self._linear = [
            built(Linear(units, units, seed=layer_seed, name=name, **parts), units)
            for name, layer_seed in zip(PROJECTIONS, weight_seeds(seed, 4), strict=True)
        ]
        self.distances = self.add_weight(
            name="distances", shape=(heads, length), initializer="zeros"
        )
        self.built = True

    def call(self, features: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
        """Maps features `[B, S, H]` to outputs `[B, S, H]`; `valid` `[B, S]` masks padding."""
        query, key, value = self._project(features)
        weights = self._weights(query, key, *self._bias_and_mask(valid))
        return features + self._attend(weights, value)

    def attention(self, features: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
        """Returns the attention weights between all steps, `[B, heads, S, S]`."""
        query, key, _ = self._project(features)
        return self._weights(query, key, *self._bias_and_mask(valid))

    def _bias_and_mask(self, valid: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the biases `[heads, S, S]` and the mask of visible steps, `[B, S, S]`."""
        steps = valid.shape[1]
        ago = np.arange(steps)[:, np.newaxis] - np.arange(steps)
        seen = tf.constant((ago >= 0) & (ago < self._length)) & valid[:, tf.newaxis, :]
        return self._offsets(steps), seen

    def step(
        self, features: tf.Tensor, state: list[tf.Tensor]
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Maps features `[N, H]` and a state to outputs `[N, H]` and the next state."""
        query, key, value = self._project(features[:, tf.newaxis])
        keys, values = (
            tf.concat([old[:, 1:], self._merge_heads(new)], axis=1)
            for old, new in ((state[0], key), (state[1], value))
        )
        count = tf.minimum(state[2] + 1.0, tf.cast(self._length, state[2].dtype))
        ago = np.arange(self._length)[::-1][np.newaxis]
        seen = tf.constant(ago, count.dtype) < count[:, tf.newaxis, tf.newaxis]
        offsets = self.distances[:, tf.newaxis, ::-1]
        weights = self._weights(query, self._split_heads(keys), offsets, seen)
        attended = self._attend(weights, self._split_heads(values))[:, 0]
        return features + attended, [keys, values, count]

    def _project(self, features: tf.Tensor) -> list[tf.Tensor]:
        """Projects features `[B, S, H]` to queries, keys and values, each `[B, heads, S, d]`."""
        normal = self._norm(features)
        return [self._split_heads(layer(normal)) for layer in self._linear[:3]]

    def _split_heads(self, features: tf.Tensor) -> tf.Tensor:
        """Splits `[B, S, H]` into heads, `[B, heads, S, d]`."""
        size, steps = tf.shape(features)[0], features.shape[1]
        split = tf.reshape(features, [size, steps, self._heads, self.units // self._heads])
        return tf.transpose(split, [0, 2, 1, 3])

    def _merge_heads(self, features: tf.Tensor) -> tf.Tensor:
        """Merges heads: `[B, heads, S, d]` to `[B, S, H]`."""
        size, steps = tf.shape(features)[0], features.shape[2]
        return tf.reshape(tf.transpose(features, [0, 2, 1, 3]), [size, steps, self.units])

    def _offsets(self, steps: int) -> tf.Tensor:
        """Returns the biases for all pairs of S steps, `[heads, S, S]`.

        The bias between steps q and s depends on q - s, so each row of the result is the previous
        row shifted by one. To build it, a row of 2 S numbers is repeated S times and reshaped to
        rows of 2 S - 1 numbers. Unlike the gradient of a gather, the gradient is then a sum over
        rows, in the same order on every device.
        """
        near = min(steps, self._length)
        row = tf.pad(self.distances[:, :near][:, ::-1], [[0, 0], [steps - near, steps]])
        rows = tf.broadcast_to(row[:, tf.newaxis], [self._heads, steps, 2 * steps])
        moved = tf.reshape(rows, [self._heads, -1])[:, : steps * (2 * steps - 1)]
        return tf.reshape(moved, [self._heads, steps, 2 * steps - 1])[:, :, steps - 1 :]

    def _attend(self, weights: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
        return self._linear[3](self._merge_heads(tf.matmul(weights, value)))

    def _weights(
        self, query: tf.Tensor, key: tf.Tensor, offsets: tf.Tensor, seen: tf.Tensor
    ) -> tf.Tensor:
        scores = tf.matmul(query, key, transpose_b=True) / math.sqrt(query.shape[-1]) + offsets
        return masked_softmax(scores, seen[:, tf.newaxis])


def masked_softmax(scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Returns a softmax over the last axis that is exactly 0 where the mask is false.

    The other weights add up to 1. If the mask is false everywhere, all weights are 0. Adding a
    large negative number to masked scores is not equivalent: masked positions would get weight if
    all other scores were very low, and uniform weights if the mask were false everywhere.

    Args:
        scores: `[..., S]`.
        mask: bool, broadcastable to the shape of `scores`.
    """
    lowest = tf.constant(scores.dtype.min, scores.dtype)
    highest = tf.reduce_max(tf.where(mask, scores, lowest), axis=-1, keepdims=True)
    # The inner `where` keeps exponentials of masked scores, and their gradients, finite.
    raised = tf.exp(tf.where(mask, scores - tf.stop_gradient(highest), 0.0))
    raised = tf.where(mask, raised, tf.zeros_like(raised))
    total = tf.reduce_sum(raised, axis=-1, keepdims=True)
    return raised / tf.where(total > 0.0, total, tf.ones_like(total))


def memory_core(
    kind: str, units: int, *, heads: int, length: int, seed: int, dtype: str
) -> RecurrentCore | AttentionCore:
    """Creates an "lstm", "gru" or "attention" core for features `[..., units]`.

    Only `AttentionCore` uses `heads` and `length`.
    """
    if kind == "attention":
        return AttentionCore(units, heads, length, seed=seed, dtype=dtype)
    return RecurrentCore(kind, units, units, seed=seed, dtype=dtype)
