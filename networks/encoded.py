"""Actor and critic on top of an encoder of observation rows, images or histories."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import keras
import tensorflow as tf

from eagerly.networks.actor import Actor, NumpySnapshot
from eagerly.networks.critic import Critic
from eagerly.networks.normalization import is_normalization


class _Encoded(keras.Model):
    """A network on top of an encoder, which may be shared with other networks.

    Args:
        encoder: A layer that maps inputs to features `[M, F]`. Its attribute `features` is F.
        action_size: A.
        name: Name of the model in graphs.
        dtype: Precision of the network.
        **network: Other arguments of the network.
    """

    _network_type: ClassVar[type[keras.Model]]

    def __init__(
        self, encoder: Any, action_size: int, *, name: str, dtype: str, **network: Any
    ) -> None:
        super().__init__(name=name, dtype=dtype, autocast=False)
        self._encoder = encoder
        self._network = self._network_type(
            encoder.features, action_size, name="network", dtype=dtype, **network
        )
        self.built = True


class EncodedActor(_Encoded, NumpySnapshot):
    """An `Actor` on top of an encoder."""

    _network_type = Actor

    def __init__(self, encoder: Any, action_size: int, **network: Any) -> None:
        super().__init__(encoder, action_size, **network)
        self.architecture = dataclasses.replace(
            self._network.architecture,
            observation_size=encoder.observation_size,
            normalized=is_normalization(encoder.normalization),
            encoder=encoder.architecture,
        )

    def call(self, inputs: Any) -> tf.Tensor:
        """Maps encoder inputs to actions `[M, A]` in [-1, 1], or scores."""
        return self._network(self._encoder(inputs))


class EncodedCritic(_Encoded):
    """A `Critic` on top of an encoder that its members share."""

    _network_type = Critic

    def call(self, inputs: Any, action: tf.Tensor) -> tf.Tensor:
        """Maps encoder inputs and actions `[M, A]` to values `[n_critics, M]`."""
        return self._network(self._encoder(inputs), action)

    def first(self, inputs: Any, action: tf.Tensor, alternatives: int = 1) -> tf.Tensor:
        """Maps encoder inputs and actions to the values of member 0; see `CriticModel.first`."""
        with tf.name_scope(self.name):
            features = self._encoder(inputs)
        with tf.name_scope(f"{self.name}_first"):
            return self._network.first(features, action, alternatives)
