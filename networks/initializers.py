"""Weight initializers of linear layers, by name.

Every name is a Keras initializer, except `torch_linear`, which draws weights *and* biases uniformly
from ±1/sqrt(fan_in), as `reset_parameters` of PyTorch's `Linear` does. With a Keras initializer,
biases start at zero, as in `keras.layers.Dense`.
"""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf

_KERAS = {
    "glorot_uniform": keras.initializers.GlorotUniform,
    "glorot_normal": keras.initializers.GlorotNormal,
    "he_uniform": keras.initializers.HeUniform,
    "he_normal": keras.initializers.HeNormal,
    "lecun_uniform": keras.initializers.LecunUniform,
    "lecun_normal": keras.initializers.LecunNormal,
    "orthogonal": keras.initializers.Orthogonal,
}
INITIALIZERS = (*_KERAS, "torch_linear")


def linear_initializers(
    name: str, fan_in: int, seed: int, *, limit: float = 0.0
) -> tuple[keras.initializers.Initializer, keras.initializers.Initializer]:
    """Returns the initializers of a kernel `[fan_in, units]` and its bias `[units]`.

    Args:
        name: One of `INITIALIZERS`.
        fan_in: Number of inputs, which determines the limits of `torch_linear`.
        seed: Calls with the same seed give the same weights.
        limit: Unless 0, kernel and bias are drawn uniformly from ±`limit`, regardless of the name.

    Raises:
        ValueError: If the name is unknown.
    """
    if name not in INITIALIZERS:
        raise ValueError(f"initializer must be one of {', '.join(INITIALIZERS)}; got {name!r}")
    kernel_seed, bias_seed = weight_seeds(seed, 2)
    if name == "torch_linear" and not limit:
        limit = 1.0 / math.sqrt(max(fan_in, 1))
    if limit:
        return (
            keras.initializers.RandomUniform(-limit, limit, seed=kernel_seed),
            keras.initializers.RandomUniform(-limit, limit, seed=bias_seed),
        )
    return _KERAS[name](seed=kernel_seed), keras.initializers.Zeros()


def member_weights(
    name: str, members: int, fan_in: int, units: int, seed: int, *, dtype: str, limit: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the initial kernels `[members, fan_in, units]` and biases `[members, units]`.

    Each member is initialized separately, with its own seed, because Keras would treat the stacked
    kernel as a convolution and scale initial weights down by sqrt(members).
    """
    kernels, biases = [], []
    for member_seed in weight_seeds(seed, members):
        kernel, bias = linear_initializers(name, fan_in, member_seed, limit=limit)
        kernels.append(np.asarray(kernel((fan_in, units), dtype=dtype)))
        biases.append(np.asarray(bias((units,), dtype=dtype)))
    return np.stack(kernels), np.stack(biases)


def initial_values(values: np.ndarray) -> dict[str, Any]:
    """Returns the arguments of `add_weight` for a variable that starts with these values."""
    return {
        "shape": values.shape,
        "initializer": lambda shape, dtype: tf.constant(values, dtype=dtype),
    }


def weight_seeds(seed: int, count: int) -> list[int]:
    """Derives `count` independent seeds in [0, 2**31) from one seed."""
    return [int(word >> 1) for word in np.random.SeedSequence(seed).generate_state(count)]
