"""The critic: an ensemble of action-value networks, evaluated together."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from eagerly.networks.activations import TENSOR, check_activation
from eagerly.networks.initializers import weight_seeds
from eagerly.networks.layers import EnsembleDense, EnsembleLayerNormalization
from eagerly.networks.normalization import ObservationNormalization


class Critic(keras.Model):
    """Maps (observation, action) to the action values of `n_critics` independent networks.

    Each member is an MLP over the observation, which the action joins at one of its layers; all
    members run as one batched matrix product per layer. The weights exist once the object does.

    Args:
        observation_size: O, the length of an observation, with its mask.
        action_size: A, the length of an action.
        masked: M, how many columns at the end of an observation are a mask, which critics ignore.
        n_critics: Number of members; TD3 uses two.
        hidden_sizes: Units of the hidden layers.
        activation: One of `networks.activations.ACTIVATIONS`.
        layer_norm: Whether hidden layers are normalised before their activation.
        initializer: One of `networks.initializers.INITIALIZERS`.
        last_layer_limit: Unless 0, the last layer is drawn uniformly from ± this.
        action_layer: The layer whose input the action joins: 0 is the first.
        normalization: What observations go through first.
        l2: Penalty c: `losses` holds c/2 Σw² of every kernel and bias.
        seed: Seed of the initial weights; the members differ.
        dtype: "float32" or "float64".
        name: Name under which the graph shows the model.
    """

    def __init__(
        self,
        observation_size: int,
        action_size: int,
        *,
        masked: int = 0,
        n_critics: int = 2,
        hidden_sizes: Sequence[int] = (256, 256),
        activation: str = "relu",
        layer_norm: bool = False,
        initializer: str = "glorot_uniform",
        last_layer_limit: float = 0.0,
        action_layer: int = 0,
        normalization: ObservationNormalization | None = None,
        l2: float = 0.0,
        seed: int = 0,
        dtype: str = "float32",
        name: str = "critic",
    ) -> None:
        # Observations are scaled in full precision: models would round them when they are called.
        super().__init__(name=name, dtype=dtype, autocast=normalization is None)
        check_activation(activation)
        self._normalization, self._masked = normalization, masked
        self.n_critics = n_critics
        self._activation = TENSOR[activation]
        if not 0 <= action_layer <= len(hidden_sizes):
            raise ValueError(
                f"action_layer must be in [0, {len(hidden_sizes)}], the number of hidden layers; "
                f"got {action_layer}"
            )
        self._action_layer = action_layer
        sizes = [observation_size - masked, *hidden_sizes, 1]
        seeds = weight_seeds(seed, len(sizes) - 1)
        self._linear = [
            EnsembleDense(
                n_critics,
                inputs + (action_size if index == action_layer else 0),
                units,
                initializer=initializer,
                limit=last_layer_limit if index == len(hidden_sizes) else 0.0,
                l2=l2,
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
        widths = (observation_size, action_size)
        self(*(np.zeros((1, width), self.variable_dtype) for width in widths))

    def call(self, observation: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """Maps `[B, O]` and `[B, A]` to values `[n_critics, B]`."""
        hidden, action = self._inputs(observation, action)
        for index, linear in enumerate(self._linear):
            if index:
                if self._norms:
                    hidden = self._norms[index - 1](hidden)
                hidden = self._activation(hidden)
            if index == self._action_layer:
                hidden = self._joined(hidden, action)
            hidden = linear(hidden)  # [n_critics, B, H]
        return tf.cast(tf.squeeze(hidden, axis=-1), self.variable_dtype)

    def first(self, observation: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """Maps `[B, O]` and `[B, A]` to the values `[B]` of member 0, at the cost of one member."""
        with tf.name_scope(f"{self.name}_first"):
            hidden, action = self._inputs(observation, action)
            for index, linear in enumerate(self._linear):
                if index:
                    if self._norms:
                        hidden = self._norms[index - 1].first(hidden)
                    hidden = self._activation(hidden)
                if index == self._action_layer:
                    hidden = self._joined(hidden, action)
                hidden = linear.first(hidden)  # [B, H]
            return tf.cast(tf.squeeze(hidden, axis=-1), self.variable_dtype)

    def encode(self, observation: tf.Tensor) -> tf.Tensor:
        """Maps `[B, O]` to what `first_of` takes, `[B, ...]`: here nothing is to be encoded."""
        return observation

    def first_of(self, features: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """Maps what `encode` returned, and actions, to the values of member 0."""
        return self.first(features, action)

    def _inputs(self, observation: tf.Tensor, action: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Scales observations, and casts to the dtype of the products."""
        if self._normalization is not None:
            observation = self._normalization(observation)
        if self._masked:
            observation = observation[:, : -self._masked]
        return tf.cast(observation, self.compute_dtype), tf.cast(action, self.compute_dtype)

    def _joined(self, hidden: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """Appends the action `[B, A]` to `[B, H]` or `[n_critics, B, H]`."""
        if len(hidden.shape) > len(action.shape):
            action = tf.broadcast_to(action, [self.n_critics, *tf.unstack(tf.shape(action))])
        return tf.concat([hidden, action], axis=-1)
