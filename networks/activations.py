"""The hidden activations for tensors; `policies.numpy_actor` has the same in NumPy."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

TENSOR: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "relu": tf.nn.relu,
    "tanh": tf.nn.tanh,
    "elu": tf.nn.elu,
    "silu": tf.nn.silu,
    "leaky_relu": lambda x: tf.nn.leaky_relu(x, alpha=0.01),
}


def check_activation(name: str) -> None:
    """Raises a ValueError if `name` is not one of `TENSOR`."""
    if name not in TENSOR:
        raise ValueError(f"activation must be one of {', '.join(TENSOR)}; got {name!r}")
