"""The hidden activations, each once for TensorFlow and once for NumPy.

The NumPy side serves `Actor.snapshot`, which acts without a TensorFlow call; a test holds the
two sides together.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf


def _silu(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # exp overflows to inf for very negative x: x / inf = -0.0
        return x / (1.0 + np.exp(-x))


TENSOR: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "relu": tf.nn.relu,
    "tanh": tf.nn.tanh,
    "elu": tf.nn.elu,
    "silu": tf.nn.silu,
    "leaky_relu": lambda x: tf.nn.leaky_relu(x, alpha=0.01),
}
ARRAY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda x: np.maximum(x, 0.0),
    "tanh": np.tanh,
    "elu": lambda x: np.where(x > 0.0, x, np.expm1(np.minimum(x, 0.0))),
    "silu": _silu,
    "leaky_relu": lambda x: np.where(x > 0.0, x, 0.01 * x),
}
ACTIVATIONS = tuple(TENSOR)


def check_activation(name: str) -> None:
    """Raises a ValueError if `name` is not one of `ACTIVATIONS`."""
    if name not in TENSOR:
        raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}; got {name!r}")
