"""Linear layers, for single networks and for batched ensembles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from eagerly.networks.initializers import initial_values, linear_initializers, member_weights


@tf.custom_gradient
def elu(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """Maps x to itself above 0 and to exp(x) - 1 below (Clevert et al. 2016, Eq. 15).

    `tf.nn.elu` computes expm1, which takes twice as long with XLA. The difference is a rounding
    error of at most 6e-8 in float32, the spacing of numbers just below 1.
    """
    y = tf.maximum(x, tf.exp(tf.minimum(x, 0.0)) - 1.0)
    return y, lambda upstream: upstream * (tf.minimum(y, 0.0) + 1.0)


# TensorFlow versions of the activations in `policies.operations`.
ACTIVATIONS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "relu": tf.nn.relu,
    "tanh": tf.nn.tanh,
    "elu": elu,
    "silu": tf.nn.silu,
    "leaky_relu": lambda x: tf.nn.leaky_relu(x, alpha=0.01),
}


class L2Half(keras.regularizers.Regularizer):
    """The penalty c/2 Σw², whose gradient is c w.

    `keras.regularizers.L2` rounds its factor to float32, even for float64 weights.
    """

    def __init__(self, factor: float) -> None:
        self._factor = factor

    def __call__(self, weights: tf.Tensor) -> tf.Tensor:
        """Returns the penalty of one variable, a scalar of its dtype."""
        return self._factor / 2 * tf.reduce_sum(tf.square(weights))


# `product` adds `_SPARE_COLUMNS` columns to inputs with a multiple of `_CONFLICTING_WIDTH`.
_SPARE_COLUMNS = 8
_CONFLICTING_WIDTH = 128


def product(inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """Multiplies `[..., B, I]` by `[..., I, units]`, with a cache-friendly gradient.

    The gradient of the kernel, inputsᵀ × upstream, reads the inputs by column. If the row length is
    a multiple of 512 bytes, all entries of a column compete for a few cache sets, and the product
    takes a third longer on a CPU. To avoid this, the inputs are padded with a few columns of zeros,
    which are cut off from the result. Only the order of additions changes, and thus the rounding.
    """
    inputs, kernel = tf.convert_to_tensor(inputs), tf.convert_to_tensor(kernel)
    width, units = kernel.shape[-2], kernel.shape[-1]
    if width % _CONFLICTING_WIDTH or units == 1 or inputs.shape.rank != kernel.shape.rank:
        return tf.matmul(inputs, kernel)
    return _product_of_wide_rows(inputs, kernel)


@tf.custom_gradient
def _product_of_wide_rows(inputs: tf.Tensor, kernel: tf.Tensor) -> tuple[tf.Tensor, Any]:
    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        spare = [[0, 0]] * (inputs.shape.rank - 1) + [[0, _SPARE_COLUMNS]]
        of_kernel = tf.matmul(tf.pad(inputs, spare), upstream, transpose_a=True)
        return (
            tf.matmul(upstream, kernel, transpose_b=True),
            of_kernel[..., : kernel.shape[-2], :],
        )

    return tf.matmul(inputs, kernel), gradient


class Linear(keras.layers.Dense):
    """A Keras `Dense` layer that uses `linear_initializers` and `product`.

    Args:
        inputs: I, the number of inputs.
        units: The number of outputs.
        initializer: One of `networks.initializers.INITIALIZERS`.
        seed: Seed of the initial weights.
        limit: Unless 0, weights and biases are drawn uniformly from ±`limit`.
        activation: One of `ACTIVATIONS`; None for no activation.
        **layer: `name` of the layer, and `dtype`, a policy such as "float32" or "mixed_bfloat16".

    Raises:
        ValueError: If the initializer is unknown.
    """

    def __init__(
        self,
        inputs: int,
        units: int,
        *,
        initializer: str,
        seed: int,
        limit: float = 0.0,
        activation: str | None = None,
        **layer: str,
    ) -> None:
        kernel, bias = linear_initializers(initializer, inputs, seed, limit=limit)
        activate = activation and ACTIVATIONS[activation]
        super().__init__(units, activate, kernel_initializer=kernel, bias_initializer=bias, **layer)

    def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Maps `[B, I]` to `[B, units]`."""
        return self.activation(product(inputs, self.kernel) + self.bias)


def built(layer: Any, *shape: int) -> Any:
    """Builds a layer for inputs `[B, *shape]`, outside a model's name scope, and returns it."""
    layer.build((None, *shape))
    return layer


class Scalar:
    """A learned scalar as the network of a `Module`, such as the logarithm of SAC's temperature.

    It is not a Keras layer, because Keras layers cannot be called without an input.

    Args:
        name: Name of the variable.
        value: Initial value.
        dtype: Dtype of the variable.
    """

    losses = ()

    def __init__(self, name: str, value: float, *, dtype: str = "float32") -> None:
        self.name, self.variable_dtype = name, dtype
        self.variables = self.trainable_variables = [keras.Variable(value, dtype=dtype, name=name)]

    def __call__(self, *, training: bool = False) -> tf.Tensor:
        """Returns the value as a scalar tensor."""
        return tf.convert_to_tensor(self.variables[0].value)


class EnsembleDense(keras.layers.Layer):
    """Applies `members` independent linear layers as one batched matrix product.

    The input is `[B, I]`, shared by all members, or `[members, B, I]`; the output is
    `[members, B, units]`. `member_weights` initializes each member separately. With `l2`, the layer
    declares the penalty l2/2 Σw² for its weights and biases, with gradient l2 w.

    Args:
        members: C, the number of members.
        inputs: I, the number of inputs.
        units: The number of outputs.
        initializer, seed, name, dtype, limit: As in `Linear`.
        l2: Factor of the penalty.
        use_bias: Whether to add a bias. Omit it before a normalization, which would cancel it.
    """

    def __init__(
        self,
        members: int,
        inputs: int,
        units: int,
        *,
        initializer: str,
        seed: int,
        name: str,
        dtype: str,
        limit: float = 0.0,
        l2: float = 0.0,
        use_bias: bool = True,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        kernels, biases = member_weights(
            initializer, members, inputs, units, seed, dtype=self.variable_dtype, limit=limit
        )
        penalty = {"regularizer": L2Half(l2) if l2 else None}
        self.kernel = self.add_weight(name="kernel", **initial_values(kernels), **penalty)
        self.bias = None
        if use_bias:
            self.bias = self.add_weight(name="bias", **initial_values(biases), **penalty)
        self.built = True

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Maps `[B, I]` or `[members, B, I]` to `[members, B, units]`."""
        outputs = product(inputs, self.kernel)
        return outputs if self.bias is None else outputs + self.bias[:, tf.newaxis, :]

    def first(self, inputs: tf.Tensor) -> tf.Tensor:
        """Maps `[B, I]` to `[B, units]`, using only member 0."""
        outputs = product(inputs, tf.cast(self.kernel[0], self.compute_dtype))
        return outputs if self.bias is None else outputs + tf.cast(self.bias[0], self.compute_dtype)
