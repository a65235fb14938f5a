"""An MLP actor in NumPy: what acts at every environment step without a call into TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from eagerly.policies.heads import ActionHead

# Maps observations `[N, O]` to scores `[N, A]`, see `ActionHead`.
RowPolicy = Callable[[np.ndarray], np.ndarray]
LAYER_NORM_EPSILON = 1e-5
# Scaled observations beyond this many deviations are cut off (Henderson et al. 2018 and the
# OpenAI Baselines before them use 10).
CLIP = 10.0


def _silu(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # exp overflows to inf for very negative x: x / inf = -0.0
        return x / (1.0 + np.exp(-x))


ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda x: np.maximum(x, 0.0),
    "tanh": np.tanh,
    "elu": lambda x: np.where(x > 0.0, x, np.expm1(np.minimum(x, 0.0))),
    "silu": _silu,
    "leaky_relu": lambda x: np.where(x > 0.0, x, 0.01 * x),
}


def numpy_policy(
    linear: Sequence[tuple[np.ndarray, np.ndarray]],
    norms: Sequence[tuple[np.ndarray, np.ndarray]],
    activation: str,
    head: ActionHead,
) -> RowPolicy:
    """Builds the NumPy function of an actor from its arrays.

    Args:
        linear: Kernel `[I, units]` and bias `[units]` of each layer, in order.
        norms: Scale and offset `[units]` of each hidden layer, or nothing.
        activation: One of `ACTIVATIONS`.
        head: What makes actions of the last layer.
    """
    activate = ACTIVATIONS[activation]
    *hidden_layers, (action_kernel, action_bias) = linear
    dtype = action_kernel.dtype

    def policy(observations: np.ndarray) -> np.ndarray:
        inputs = np.asarray(observations, dtype)
        hidden = inputs[:, : -head.masked] if head.masked else inputs
        for index, (kernel, bias) in enumerate(hidden_layers):
            hidden = hidden @ kernel
            hidden += bias
            if norms:
                gamma, beta = norms[index]
                hidden -= hidden.mean(axis=-1, keepdims=True)
                variance = np.square(hidden).mean(axis=-1, keepdims=True)
                hidden = hidden / np.sqrt(variance + LAYER_NORM_EPSILON) * gamma + beta
            hidden = activate(hidden)
        return head.scores(hidden @ action_kernel + action_bias, inputs)

    return policy


def normalized(observations: np.ndarray, mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Does what `networks.ObservationNormalization` does, for columns that are scaled."""
    scaled = (observations - mean) * scale
    return np.minimum(np.maximum(scaled, -CLIP), CLIP)
