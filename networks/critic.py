"""The critic: an ensemble of action-value networks, evaluated together."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
import tensorflow as tf

from eagerly.networks.layers import EnsembleDense, EnsembleLayerNormalization
from eagerly.networks.mlp import MLP
from eagerly.networks.models import repeated


class Critic(MLP):
    """Maps (observation, action) to the action values of `n_critics` independent networks.

    Each member is an MLP over the observation, which the action joins at one of its layers; all
    members run as one batched matrix product per layer. The weights exist once the object does;
    the members begin with different ones.

    Args:
        observation_size: O, the length of an observation, with its mask.
        action_size: A, the length of an action.
        masked: M, how many columns at the end of an observation are a mask, which critics ignore.
        n_critics: Number of members; TD3 uses two.
        l2: Penalty c: `losses` holds c/2 Σw² of every kernel and bias.
        name: Name under which the graph shows the model.
        **network: `hidden_sizes`, `action_layer` and what else `MLP` takes.
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
        """Maps `[B, O]` and `[B, A]` to values `[n_critics, B]`."""
        return self._values(observation, action, lambda layer: layer)

    def first(self, observation: tf.Tensor, action: tf.Tensor, alternatives: int = 1) -> tf.Tensor:
        """Maps `[B, O]` and actions to the values of member 0, at the cost of one member.

        Arguments as `CriticModel` has them.
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
