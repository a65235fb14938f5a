"""A built-in actor as a TensorFlow function, for SavedModel and LiteRT.

Weights become constants inside the function. Variables would have to be tracked by the saved
object: untracked ones are silently omitted from the file, so that the loaded function returns NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from eagerly.export.interface import computed, inputs, outputs
from eagerly.policies.integer_grids import LEAST, MOST, grid
from eagerly.policies.network import ActorNetwork
from eagerly.policies.operations import AVERAGE_L1_EPSILON, LAYER_NORM_EPSILON, Convolution

_ACTIVATIONS = {
    "relu": tf.nn.relu,
    "tanh": tf.math.tanh,
    "elu": tf.nn.elu,
    "silu": lambda x: x * tf.math.sigmoid(x),
    "leaky_relu": lambda x: tf.nn.leaky_relu(x, 0.01),
}
# Factor that keeps a small constant representable in 16 bits. Multiplying by a power of 2 is exact.
_RAISED = 2.0**13


class TensorFlowOperations:
    """Implementation of `policies.operations.Operations` on float32 tensors."""

    def linear(self, x: tf.Tensor, kernel: np.ndarray, bias: np.ndarray) -> tf.Tensor:
        """Maps `[N, I]` to `[N, units]`."""
        return tf.nn.bias_add(tf.linalg.matmul(x, kernel), bias)

    def matmul(self, a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        """Multiplies `[..., I, K]` by `[..., K, J]`."""
        return tf.linalg.matmul(a, b)

    def activation(self, name: str, x: tf.Tensor) -> tf.Tensor:
        """Applies one of `policies.operations.ACTIVATIONS`."""
        return _ACTIVATIONS[name](x)

    def layer_norm(
        self,
        x: tf.Tensor,
        gamma: np.ndarray,
        beta: np.ndarray,
        *,
        epsilon: float = LAYER_NORM_EPSILON,
    ) -> tf.Tensor:
        """Normalizes `[N, units]` over the last axis."""
        x = x - tf.reduce_mean(x, axis=-1, keepdims=True)
        variance = tf.reduce_mean(tf.square(x), axis=-1, keepdims=True)
        return x * tf.math.rsqrt(variance + np.float32(epsilon)) * gamma + beta

    def centered(self, images: tf.Tensor) -> tf.Tensor:
        """Subtracts its mean from each image."""
        return images - tf.reduce_mean(images, axis=[1, 2, 3], keepdims=True)

    def convolved(self, images: tf.Tensor, layers: Sequence[Convolution]) -> tf.Tensor:
        """Applies convolutions, each followed by a relu, to images."""
        for kernel, bias, strides in layers:
            images = tf.nn.conv2d(images, kernel, strides, "VALID")
            images = tf.nn.relu(tf.nn.bias_add(images, bias))
        return images

    def average_l1_norm(self, x: tf.Tensor) -> tf.Tensor:
        """Divides by the mean absolute value over the last axis."""
        mean = tf.reduce_mean(tf.abs(x), axis=-1, keepdims=True)
        # A float16 file stores constants in 16 bits, so the unscaled epsilon would underflow to 0.
        scaled = tf.maximum(mean * _RAISED, _RAISED * AVERAGE_L1_EPSILON)
        return x / (scaled * (1.0 / _RAISED))

    def tanh(self, x: tf.Tensor) -> tf.Tensor:
        """Returns the hyperbolic tangent."""
        return tf.math.tanh(x)

    def sigmoid(self, x: tf.Tensor) -> tf.Tensor:
        """Returns 1 / (1 + exp(-x))."""
        return tf.math.sigmoid(x)

    def masked_softmax(self, scores: tf.Tensor, seen: tf.Tensor) -> tf.Tensor:
        """Returns softmax weights over the last axis, exactly 0 where `seen` is False."""
        return tf.nn.softmax(tf.where(seen, scores, np.finfo(np.float32).min))

    def minimum(self, x: tf.Tensor, most: float) -> tf.Tensor:
        """Returns the elementwise minimum of x and a number."""
        return tf.minimum(x, most)

    def less(self, a: np.ndarray, b: tf.Tensor) -> tf.Tensor:
        """Returns where the constants `a` are less than `b`."""
        return tf.less(a, b)

    def concat(self, parts: Sequence[tf.Tensor], axis: int = -1) -> tf.Tensor:
        """Concatenates parts along an axis."""
        return tf.concat(parts, axis)

    def part(self, x: tf.Tensor, start: int, stop: int, axis: int = -1) -> tf.Tensor:
        """Returns a slice along an axis."""
        index = [slice(None)] * x.shape.rank
        index[axis] = slice(start, stop)
        return x[tuple(index)]

    def reshape(self, x: tf.Tensor, shape: tuple[int, ...]) -> tf.Tensor:
        """Changes the shape; -1 is the batch size N."""
        return tf.reshape(x, shape)

    def transpose(self, x: tf.Tensor, axes: tuple[int, ...]) -> tf.Tensor:
        """Permutes the axes."""
        return tf.transpose(x, axes)

    def quantized(self, x: tf.Tensor, low: float, high: float) -> tf.Tensor:
        """Rounds to the grid of `policies.integer_grids.grid(low, high)`."""
        scale, zero_point = grid(low, high)
        q = tf.clip_by_value(tf.round(x / scale) + np.float32(zero_point), LEAST, MOST)
        return (q - np.float32(zero_point)) * scale


class FakeQuantOperations(TensorFlowOperations):
    """Operations that use TensorFlow's fake quantization, which the LiteRT converter understands.

    The traced function differs from the network by up to one step, because TensorFlow rounds half
    up instead of half to even. The integers in the converted file do not differ.
    """

    def quantized(self, x: tf.Tensor, low: float, high: float) -> tf.Tensor:
        """Rounds to the grid of `policies.integer_grids.grid(low, high)`."""
        return tf.quantization.fake_quant_with_min_max_args(x, min(low, 0.0), max(high, 0.0))


def actor_function(
    network: ActorNetwork, ops: TensorFlowOperations, count: int | None
) -> tf.types.experimental.ConcreteFunction:
    """Traces a network as a TensorFlow function with named inputs and outputs.

    Args:
        network: The network, in float32.
        ops: The operations that build the graph.
        count: The batch size N; None for any size.
    """
    architecture = network.architecture
    specs = [
        tf.TensorSpec((count, *shape), tf.float32, name)
        for name, shape in inputs(architecture).items()
    ]
    names = list(outputs(architecture))

    @tf.function(input_signature=specs, autograph=False)
    def act(*given: tf.Tensor) -> dict[str, tf.Tensor]:
        found: list[Any] = computed(network, ops, given)
        return {name: tf.identity(x, name) for name, x in zip(names, found, strict=True)}

    return act.get_concrete_function()
