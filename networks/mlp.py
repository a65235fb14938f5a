"""The base class of actors and critics: an MLP over normalized observations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from eagerly.networks.initializers import weight_seeds
from eagerly.networks.layers import ACTIVATIONS, built
from eagerly.networks.normalization import ObservationNormalization


class MLP(keras.Model):
    """Base class of actors and critics, whose constructors take these arguments as keywords.

    Args:
        sizes: Numbers of inputs and outputs.
        linear: Creates a linear layer; called with the arguments of `Linear`.
        norm: Creates a normalization layer; called with its units, name and dtype.
        last: Name of the last layer.
        masked: M, the number of mask columns at the end of an observation. No layer receives them.
        action_layer: Index of the layer that takes the action as an additional input.
        action_size: A, or 0 if there is no action input.
        hidden_sizes: Units of the hidden layers.
        activation: One of `networks.layers.ACTIVATIONS`.
        layer_norm: Whether hidden layers are normalized before their activation.
        initializer: One of `networks.initializers.INITIALIZERS`.
        last_layer_limit: Unless 0, the last layer is drawn uniformly from ± this limit.
        normalization: Applied to observations first.
        seed: Seed of the initial weights.
        dtype: "float32", "float64" or "mixed_bfloat16".
        name: Name of the model in graphs.

    Raises:
        ValueError: If the activation or initializer is unknown, or `action_layer` is out of range.
    """

    def __init__(
        self,
        sizes: tuple[int, int],
        linear: Callable[..., Any],
        norm: Callable[..., Any],
        *,
        last: str,
        masked: int,
        action_layer: int = 0,
        action_size: int = 0,
        hidden_sizes: Sequence[int] = (256, 256),
        activation: str = "relu",
        layer_norm: bool = False,
        initializer: str = "glorot_uniform",
        last_layer_limit: float = 0.0,
        normalization: ObservationNormalization | None = None,
        seed: int = 0,
        dtype: str = "float32",
        name: str,
    ) -> None:
        # Observations are normalized in full precision; autocast would round them first.
        super().__init__(name=name, dtype=dtype, autocast=normalization is None)
        count = len(hidden_sizes)
        if activation not in ACTIVATIONS:
            names = ", ".join(ACTIVATIONS)
            raise ValueError(f"activation must be one of {names}; got {activation!r}")
        if not 0 <= action_layer <= count:
            raise ValueError(
                f"action_layer must be in [0, {count}], the number of hidden layers; got "
                f"{action_layer}"
            )
        self._activation, self._masked, self._normalization = activation, masked, normalization
        self._action_layer = action_layer
        inputs, units = [sizes[0], *hidden_sizes], [*hidden_sizes, sizes[1]]
        inputs[action_layer] += action_size
        self._widths = *inputs, *(hidden_sizes if layer_norm else ())
        self._linear = [
            linear(
                inputs[index],
                units[index],
                initializer=initializer,
                limit=last_layer_limit if index == count else 0.0,
                seed=layer_seed,
                name=last if index == count else f"hidden_{index}",
                dtype=dtype,
            )
            for index, layer_seed in enumerate(weight_seeds(seed, count + 1))
        ]
        self._norms = [
            norm(units[index], name=f"norm_{index}", dtype=dtype)
            for index in range(count)
            if layer_norm
        ]

    def build(self, input_shape: Any) -> None:
        """Builds the layers. Keras' default would trace `call` and leak its custom gradients."""
        for layer, width in zip((*self._linear, *self._norms), self._widths, strict=True):
            if not layer.built:
                built(layer, width)

    def _inputs(self, observation: tf.Tensor) -> tf.Tensor:
        """Maps `[B, O]` to normalized observations `[B, V]`, without their mask."""
        if self._normalization is not None:
            observation = self._normalization(observation)
        if self._masked:
            observation = observation[:, : -self._masked]
        return tf.cast(observation, self.compute_dtype)

    def _outputs(
        self,
        observation: tf.Tensor,
        part: Callable[[Any], Any] = lambda layer: layer,
        joined: Callable[[tf.Tensor], tf.Tensor] = lambda hidden: hidden,
    ) -> tf.Tensor:
        """Maps `[B, O]` to the outputs of the last layer.

        `part` returns the function to call for a layer: the layer itself, or its method `first`.
        `joined` appends an action to the inputs of `action_layer`.
        """
        hidden = self._inputs(observation)
        for index, linear in enumerate(self._linear):
            if index:
                if self._norms:
                    hidden = part(self._norms[index - 1])(hidden)
                hidden = ACTIVATIONS[self._activation](hidden)
            hidden = part(linear)(joined(hidden) if index == self._action_layer else hidden)
        return tf.cast(hidden, self.variable_dtype)
