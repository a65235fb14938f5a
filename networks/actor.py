"""The actor, which maps observations to actions in [-1, 1] and to scores of discrete choices."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from eagerly.networks.layers import Linear
from eagerly.networks.mlp import MLP
from eagerly.networks.normalization import is_normalization
from eagerly.networks.quantization_ranges import Quantization
from eagerly.policies.architecture import ActorArchitecture
from eagerly.policies.heads import ActionHead
from eagerly.policies.network import ActorNetwork
from eagerly.policies.numpy_actor import NumpyActor, NumpyMemoryActor, acting_in_numpy
from eagerly.policies.operations import LAYER_NORM_EPSILON
from eagerly.policies.weights import check_weights, named
from eagerly.spaces.actions import INVALID


class NumpySnapshot:
    """Mixin for actors that can act in NumPy.

    Attributes:
        architecture: Description of the network.
    """

    architecture: ActorArchitecture
    variables: Sequence[Any]

    def snapshot(self, weights: Sequence[np.ndarray] = ()) -> NumpyActor | NumpyMemoryActor:
        """Copies the current weights into a NumPy actor.

        Calling the NumPy actor takes about a tenth of the time of a TensorFlow call, which makes
        acting at every environment step cheap. Later updates do not change the copy.

        Args:
            weights: The values of `variables`, in order, if they were already read.
        """
        values = weights or [variable.numpy() for variable in self.variables]
        return acting_in_numpy(
            ActorNetwork(self.architecture, dict(zip(self._names, values, strict=True)))
        )

    @cached_property
    def _names(self) -> list[str]:
        """The variables' names in an `ActorNetwork`."""
        weights = named({variable.path: variable.numpy() for variable in self.variables})
        check_weights(self.architecture, weights)
        return list(weights)


class Actor(MLP, NumpySnapshot):
    """Maps observations to actions in [-1, 1] through an MLP that ends in a tanh.

    For discrete choices, it returns scores; see `ActionHead`. The constructor creates all weights.

    Args:
        observation_size: O, the length of an observation, including its mask.
        action_size: A, the length of an action.
        head: Maps the last layer's outputs to actions; if None, a tanh is applied to each.
        quantization: The quantization grids, if the actor is quantized.
        name: Name of the model in graphs.
        **network: `hidden_sizes` and other arguments of `MLP`.

    Raises:
        ValueError: If a quantized actor is not a float32 ReLU network without layer_norm.
    """

    def __init__(
        self,
        observation_size: int,
        action_size: int,
        *,
        head: ActionHead | None = None,
        quantization: Quantization | None = None,
        name: str = "actor",
        **network: Any,
    ) -> None:
        head = head or ActionHead(action_size)
        sizes = observation_size - head.masked, action_size
        super().__init__(
            sizes, Linear, _norm, last="action", masked=head.masked, name=name, **network
        )
        self._head, self._quantization = head, quantization
        kind = self._activation, bool(self._norms), self.compute_dtype
        if quantization is not None and kind != ("relu", False, "float32"):
            raise ValueError(
                "a quantized actor must have activation relu, no layer_norm and dtype float32; got "
                f"activation {kind[0]}, layer_norm {kind[1]} and dtype {self.dtype_policy.name}"
            )
        self(np.zeros((1, observation_size), self.variable_dtype))
        self.architecture = ActorArchitecture(
            observation_size=observation_size,
            head=head,
            hidden_sizes=tuple(layer.units for layer in self._linear[:-1]),
            activation=self._activation,
            layer_norm=bool(self._norms),
            normalized=is_normalization(self._normalization),
            quantized=quantization is not None,
        )

    def scalars(self) -> dict[str, float]:
        """Returns the ends of the actor's quantization ranges as metrics, or `{}` without any."""
        if self._quantization is None:
            return {}
        parts = {"action": self._head.continuous, "logits": self._head.choices}
        absent = tuple(f"ranges/{name}" for name, there in parts.items() if not there)
        ends = self._quantization.ends()
        return {name: end for name, end in ends.items() if not name.startswith(absent)}

    def call(self, observation: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Maps `[B, O]` to actions `[B, A]` in [-1, 1], or scores.

        In training, the ranges of a quantized actor track the batch.
        """
        if self._quantization is None:
            return scores(self._head, self._outputs(observation), observation)
        inputs, continuous = self._inputs(observation), self._head.continuous
        outputs = self._quantization.outputs(inputs, self._linear, continuous, training=training)
        return scores(dataclasses.replace(self._head, squashes=False), outputs, observation)


def _norm(units: int, **layer: str) -> keras.layers.Layer:
    return keras.layers.LayerNormalization(epsilon=LAYER_NORM_EPSILON, **layer)


def scores(head: ActionHead, outputs: tf.Tensor, observation: tf.Tensor) -> tf.Tensor:
    """Maps the last layer's outputs `[B, A]` to scores, using the mask in observations `[B, O]`.

    Equivalent to `ActionHead.scores`, which uses NumPy.
    """
    squashed = tf.tanh if head.squashes else tf.identity
    if not head.choices:
        return squashed(outputs)
    parts = [squashed(outputs[:, : head.continuous])] if head.continuous else []
    for columns in head.segments():
        logits = outputs[:, columns]
        if head.masked:
            valid = head.mask_of(observation, columns) > 0.5
            lowest = tf.where(valid, logits, logits.dtype.min)
            logits = logits - tf.stop_gradient(tf.reduce_max(lowest, axis=1, keepdims=True))
            powers = tf.where(valid, tf.exp(tf.where(valid, logits, 0.0)), 0.0)
            # The sum is at least 1, except in padding: no value is valid there, and without the
            # maximum, gradients could become NaN.
            total = tf.maximum(tf.reduce_sum(powers, axis=1, keepdims=True), 0.5)
            parts.append(tf.where(valid, logits - tf.math.log(total), INVALID))
        else:
            parts.append(tf.nn.log_softmax(logits))
    return tf.concat(parts, axis=1)
