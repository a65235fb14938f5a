"""The critic: an ensemble of action-value networks, evaluated together."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from eagerly.networks.activations import TENSOR, check_activation
from eagerly.networks.initializers import weight_seeds
from eagerly.networks.layers import EnsembleDense, EnsembleLayerNormalization


class Critic(keras.Model):
    """Maps (observation, action) to the action values of `n_critics` independent networks.

    Each member is an MLP over the concatenation of observation and action; all members run as
    one batched matrix product per layer. The weights exist once the object does.

    Args:
        observation_size: O, the length of a flat observation.
        action_size: A, the length of an action.
        n_critics: Number of members; TD3 uses two.
        hidden_sizes: Units of the hidden layers.
        activation: One of `networks.activations.ACTIVATIONS`.
        layer_norm: Whether hidden layers are normalised before their activation.
        initializer: One of `networks.initializers.INITIALIZERS`.
        seed: Seed of the initial weights; the members differ.
        dtype: "float32" or "float64".
        name: Name under which the graph shows the model.
    """

    def __init__(
        self,
        observation_size: int,
        action_size: int,
        *,
        n_critics: int = 2,
        hidden_sizes: Sequence[int] = (256, 256),
        activation: str = "relu",
        layer_norm: bool = False,
        initializer: str = "glorot_uniform",
        seed: int = 0,
        dtype: str = "float32",
        name: str = "critic",
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        check_activation(activation)
        self.n_critics = n_critics
        self._activation = TENSOR[activation]
        sizes = [observation_size + action_size, *hidden_sizes, 1]
        seeds = weight_seeds(seed, len(sizes) - 1)
        self._linear = [
            EnsembleDense(
                n_critics,
                inputs,
                units,
                initializer=initializer,
                seed=layer_seed,
                name="value" if index == len(hidden_sizes) else f"hidden_{index}",
                dtype=dtype,
            )
            for index, (inputs, units, layer_seed) in enumerate(
                zip(sizes[:-1], sizes[1:], seeds, strict=True)
            )
        ]
        self._norms = [
            EnsembleLayerNormalization(n_critics, units, name=f"norm_{index}", dtype=dtype)
            for index, units in enumerate(hidden_sizes)
            if layer_norm
        ]
        self(np.zeros((1, observation_size), dtype), np.zeros((1, action_size), dtype))

    def call(self, observation: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """Maps `[B, O]` and `[B, A]` to values `[n_critics, B]`."""
        hidden = tf.concat([observation, action], axis=-1)  # [B, O + A]
        for index, linear in enumerate(self._linear[:-1]):
            hidden = linear(hidden)  # [n_critics, B, H]
            if self._norms:
                hidden = self._norms[index](hidden)
            hidden = self._activation(hidden)
        return tf.squeeze(self._linear[-1](hidden), axis=-1)

    def first(self, observation: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """Maps `[B, O]` and `[B, A]` to the values `[B]` of member 0, at the cost of one member."""
        with tf.name_scope(f"{self.name}_first"):
            hidden = tf.concat([observation, action], axis=-1)
            for index, linear in enumerate(self._linear[:-1]):
                hidden = linear.first(hidden)  # [B, H]
                if self._norms:
                    hidden = self._norms[index].first(hidden)
                hidden = self._activation(hidden)
            return tf.squeeze(self._linear[-1].first(hidden), axis=-1)
