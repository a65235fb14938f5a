"""The critic: an ensemble of action-value networks, evaluated together."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
import tensorflow as tf

from eagerly.networks.layers import EnsembleDense
from eagerly.networks.mlp import MLP
from eagerly.networks.models import repeated
from eagerly.networks.normalization import EnsembleLayerNormalization


class Critic(MLP):
    """Maps (observation, action) to the action values of `n_critics` independent networks.

    Each member is an MLP over the observation, and the action is an additional input of one of its
    layers. All members run as one batched matrix product per layer. The constructor creates all
    weights, which differ between members.

    Args:
        observation_size: O, the length of an observation, including its mask.
        action_size: A, the length of an action.
        masked: M, the number of mask columns at the end of an observation, which critics ignore.
        n_critics: Number of members; TD3 uses two.
        l2: Penalty factor c: `losses` holds c/2 Σw² for every kernel and bias.
        name: Name of the model in graphs.
        **network: `hidden_sizes`, `action_layer` and other arguments of `MLP`.
    """

    def __init__(
        self,
        observation_size: int,
        action_size: int,
        *,
        masked: int = 0,
        n_critics: int = 2,
        l2: float = 0.0,
        name: str = "critic",
        **network: Any,
    ) -> None:
        super().__init__(
            (observation_size - masked, 1),
            partial(EnsembleDense, n_critics, l2=l2),
            partial(EnsembleLayerNormalization, n_critics),
            last="value",
            masked=masked,
            action_size=action_size,
            name=name,
            **network,
        )
        self.n_critics = n_critics
        widths = (observation_size, action_size)
        self(*(np.zeros((1, width), self.variable_dtype) for width in widths))

    def call(self, observation: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """Maps observations `[B, O]` and actions `[B, A]` to values `[n_critics, B]`."""
        return self._values(observation, action, lambda layer: layer)

    def first(self, observation: tf.Tensor, action: tf.Tensor, alternatives: int = 1) -> tf.Tensor:
        """Maps observations and actions to the values of member 0, without computing the others.

        See `CriticModel.first` for the arguments.
        """
        with tf.name_scope(f"{self.name}_first"):
            observation = repeated(observation, alternatives)
            return self._values(observation, action, attrgetter("first"))

    def _values(
        self, observation: tf.Tensor, action: tf.Tensor, part: Callable[[Any], Any]
    ) -> tf.Tensor:
        action = tf.cast(action, self.compute_dtype)

        def joined(hidden: tf.Tensor) -> tf.Tensor:
            more = action
            if len(hidden.shape) > len(action.shape):  # [n_critics, B, H]
                more = tf.broadcast_to(action, [self.n_critics, *tf.unstack(tf.shape(action))])
            return tf.concat([hidden, more], axis=-1)

        return tf.squeeze(self._outputs(observation, part, joined), axis=-1)
