"""Actors with random weights, optionally quantized with ranges measured on random rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from eagerly.policies.architecture import ActorArchitecture, StateEmbedding
from eagerly.policies.heads import ActionHead
from eagerly.policies.integer_grids import SATURATED, column_scales, grid
from eagerly.policies.network import ActorNetwork
from eagerly.policies.numpy_actor import NumpyActor, numpy_actor

Ranges = list[tuple[float, float]]
EMBEDDING = StateEmbedding(units=6, hidden_sizes=(16, 12), activation="elu", features=10)


def actor(
    sizes: tuple[int, ...] = (16, 12),
    *,
    observation_size: int = 5,
    head: ActionHead | None = None,
    activation: str = "relu",
    dtype: str = "float32",
    seed: int = 0,
    **more: Any,
) -> ActorNetwork:
    """Creates an actor with random weights and normalization statistics."""
    head = head or ActionHead(2)
    architecture = ActorArchitecture(
        observation_size=observation_size,
        head=head,
        hidden_sizes=sizes,
        activation=activation,
        **more,
    )
    return ActorNetwork(architecture, weights(architecture, seed, dtype))


def weights(
    architecture: ActorArchitecture, seed: int = 0, dtype: str = "float32"
) -> dict[str, np.ndarray]:
    """Draws the weights and normalization statistics of an actor."""
    random, drawn = np.random.default_rng(seed), {}
    for name, shape in architecture.shapes().items():
        spread = 1.4 / np.sqrt(shape[0]) if name.endswith("kernel") else 0.1
        around = 1.0 if name.endswith(("gamma", "scale")) else 0.0
        drawn[name] = (around + spread * random.normal(size=shape)).astype(dtype)
    return drawn


def quantised(network: ActorNetwork, ranges: Ranges | None = None, seed: int = 1) -> ActorNetwork:
    """Quantizes an MLP with these ranges, or with ranges measured on normally distributed rows."""
    given, head = network.weights, network.architecture.head
    hidden = np.random.default_rng(seed).normal(size=(4000, network.architecture.visible))
    found = [(float(hidden.min()), float(hidden.max()))]
    for index in range(len(network.architecture.hidden_sizes)):
        kernel, bias = given[f"hidden_{index}/kernel"], given[f"hidden_{index}/bias"]
        hidden = np.maximum(hidden @ kernel + bias, 0.0)
        found.append((0.0, float(hidden.max())))
    outputs = hidden @ given["action/kernel"] + given["action/bias"]
    for columns in (outputs[:, : head.continuous], outputs[:, head.continuous :]):
        ends = (float(columns.min()), float(columns.max())) if columns.size else (-1.0, 1.0)
        found.append(ends)
    found[-2] = max(found[-2][0], -SATURATED), min(found[-2][1], SATURATED)
    low, high = np.transpose(ranges or found).astype(np.float32)
    more = {"quantization/low": low, "quantization/high": high}
    return ActorNetwork(replace(network.architecture, quantized=True), given | more)


def acting(network: ActorNetwork) -> NumpyActor:
    """Returns the NumPy actor of a non-recurrent network."""
    found = numpy_actor(network.architecture, network.weights)
    assert isinstance(found, NumpyActor)
    return found


def int8_rows(count: int, size: int, seed: int = 2) -> np.ndarray:
    """Draws int8 rows `[N, V]`: half uniformly, half like quantized observations."""
    random, half = np.random.default_rng(seed), count // 2
    anywhere = random.integers(-128, 128, (half, size))
    usual = np.clip(np.rint(28.0 * random.normal(size=(count - half, size))), -128, 127)
    return np.concatenate([anywhere, usual]).astype(np.int8)


MUTATIONS = ("weight", "bias", "unit", "range")


def mutated(network: ActorNetwork, what: str, seed: int) -> ActorNetwork:
    """Returns a quantized MLP with one slightly wrong parameter.

    Args:
        network: The network, with at least one hidden layer.
        what: One of `MUTATIONS`. "weight" changes a weight by 1 grid step, "bias" a bias by 64 grid
            steps, "unit" all weights of a unit by 1 %, and "range" the upper end of the range of a
            hidden layer by 1 %.
        seed: Selects the layer, the unit and the weight.
    """
    random, weights = np.random.default_rng(seed), dict(network.weights)
    hidden = len(network.architecture.hidden_sizes)
    index = int(random.integers(hidden + (what != "range")))
    if what == "range":
        high = weights["quantization/high"].copy()
        high[index + 1] *= np.float32(1.01)
        return ActorNetwork(network.architecture, weights | {"quantization/high": high})
    layer = f"hidden_{index}" if index < hidden else "action"
    kernel, bias = (weights[f"{layer}/{part}"].copy() for part in ("kernel", "bias"))
    input_scale = grid(*network.ranges[index])[0]
    unit = int(random.integers(len(bias)))
    scale = column_scales(kernel, bias, input_scale)[unit]
    if what == "weight":
        row = random.choice(np.flatnonzero(np.abs(kernel[:, unit]) < 125 * scale))
        kernel[row, unit] += scale
    elif what == "bias":
        bias[unit] += 64 * input_scale * scale
    else:
        kernel[:, unit] *= np.float32(1.01)
    return ActorNetwork(
        network.architecture, weights | {f"{layer}/kernel": kernel, f"{layer}/bias": bias}
    )
