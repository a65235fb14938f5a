"""The actor: a policy from observations to actions in [-1, 1], and to scores of choices."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from eagerly.networks.activations import TENSOR, check_activation
from eagerly.networks.heads import scores
from eagerly.networks.initializers import linear_initializers, weight_seeds
from eagerly.networks.layers import Linear
from eagerly.networks.normalization import ObservationNormalization
from eagerly.policies.heads import ActionHead
from eagerly.policies.numpy_actor import (
    LAYER_NORM_EPSILON,
    RowPolicy,
    normalized,
    numpy_policy,
)


class Actor(keras.Model):
    """Maps observations to actions in [-1, 1] through an MLP that ends in a tanh.

    Of discrete choices it gives scores, see `ActionHead`. The weights exist once the object does.

    Args:
        observation_size: O, the length of an observation, with its mask.
        action_size: A, the length of an action.
        head: What makes actions of the last layer; None: a tanh for each of the A dimensions.
        hidden_sizes: Units of the hidden layers.
        activation: One of `policies.numpy_actor.ACTIVATIONS`.
        layer_norm: Whether hidden layers are normalised before their activation.
        initializer: One of `networks.initializers.INITIALIZERS`.
        last_layer_limit: Unless 0, the last layer is drawn uniformly from ± this.
        normalization: What observations go through first.
        seed: Seed of the initial weights.
        dtype: "float32" or "float64".
        name: Name under which the graph shows the model.
    """

    def __init__(
        self,
        observation_size: int,
        action_size: int,
        *,
        head: ActionHead | None = None,
        hidden_sizes: Sequence[int] = (256, 256),
        activation: str = "relu",
        layer_norm: bool = False,
        initializer: str = "glorot_uniform",
        last_layer_limit: float = 0.0,
        normalization: ObservationNormalization | None = None,
        seed: int = 0,
        dtype: str = "float32",
        name: str = "actor",
    ) -> None:
        # Observations are scaled in full precision: models would round them when they are called.
        super().__init__(name=name, dtype=dtype, autocast=normalization is None)
        check_activation(activation)
        self._activation = activation
        self._normalization = normalization
        self._head = head or ActionHead(action_size)
        sizes = [observation_size - self._head.masked, *hidden_sizes, action_size]
        self._linear = []
        for index, layer_seed in enumerate(weight_seeds(seed, len(sizes) - 1)):
            limit = last_layer_limit if index == len(hidden_sizes) else 0.0
            kernel, bias = linear_initializers(initializer, sizes[index], layer_seed, limit=limit)
            layer = Linear(
                sizes[index + 1],
                kernel_initializer=kernel,
                bias_initializer=bias,
                name="action" if index == len(hidden_sizes) else f"hidden_{index}",
                dtype=dtype,
            )
            self._linear.append(layer)
        self._norms = [
            keras.layers.LayerNormalization(
                epsilon=LAYER_NORM_EPSILON, name=f"norm_{index}", dtype=dtype
            )
            for index in range(len(hidden_sizes))
            if layer_norm
        ]
        self(np.zeros((1, observation_size), self.variable_dtype))

    def call(self, observation: tf.Tensor) -> tf.Tensor:
        """Maps `[B, O]` to actions `[B, A]` in [-1, 1], or scores."""
        scaled = self._normalization(observation) if self._normalization else observation
        hidden = self._head.visible(scaled)
        for index, linear in enumerate(self._linear[:-1]):
            hidden = linear(hidden)
            if self._norms:
                hidden = self._norms[index](hidden)
            hidden = TENSOR[self._activation](hidden)
        outputs = tf.cast(self._linear[-1](hidden), self.variable_dtype)
        return scores(self._head, outputs, observation)

    def snapshot(self, weights: Sequence[np.ndarray] = ()) -> RowPolicy:
        """Copies the current weights into a NumPy function `[N, O] -> [N, A]`.

        One call of it costs about a tenth of a call into TensorFlow, which is what makes acting
        at every environment step cheap. Later updates of the actor do not change it.

        Args:
            weights: The values of `variables`, in order, where they are at hand already.
        """
        values = weights or [variable.numpy() for variable in self.variables]
        of = {id(v): value for v, value in zip(self.variables, values, strict=True)}
        linear = [(of[id(layer.kernel)], of[id(layer.bias)]) for layer in self._linear]
        norms = [(of[id(layer.gamma)], of[id(layer.beta)]) for layer in self._norms]
        policy = numpy_policy(linear, norms, self._activation, self._head)
        if self._normalization is None:
            return policy
        mean, scale = (of[id(v)] for v in (self._normalization.mean, self._normalization.scale))
        return lambda observations: policy(normalized(observations, mean, scale))
