"""The model inputs and outputs shared by all export formats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from eagerly.policies.architecture import ActorArchitecture, MemoryCore
from eagerly.policies.integer_grids import MOST, TANH_SCALE
from eagerly.policies.network import ActorNetwork
from eagerly.policies.operations import Operations

# Names and shapes without the batch axis, in argument order.
Tensors = dict[str, tuple[int, ...]]
# Range of quantized actions after tanh, which gives a grid with a scale of 1/128.
TANH_RANGE = (-1.0, MOST * TANH_SCALE)


def inputs(architecture: ActorArchitecture) -> Tensors:
    """Returns the model inputs: the scaled observation without masks, and any recurrent inputs."""
    found: Tensors = {"observation": (architecture.visible,)}
    if isinstance(core := architecture.encoder, MemoryCore):
        found |= {"previous_action": (architecture.head.size,), "previous_reward": ()}
        found |= {f"state_{index}": shape for index, shape in enumerate(core.state_shapes())}
    return found


def outputs(architecture: ActorArchitecture) -> Tensors:
    """Returns the model outputs: actions after tanh, raw logits and the next recurrent state."""
    head, found = architecture.head, Tensors()
    if head.continuous:
        found["action"] = (head.continuous,)
    if head.choices:
        found["logits"] = (sum(head.choices),)
    if isinstance(core := architecture.encoder, MemoryCore):
        found |= {f"next_state_{index}": shape for index, shape in enumerate(core.state_shapes())}
    return found


def described(tensors: Tensors) -> list[dict[str, Any]]:
    """Returns descriptions of float32 tensors with batch size 1."""
    return [
        {"name": name, "shape": [1, *shape], "dtype": "float32"} for name, shape in tensors.items()
    ]


def computed(network: ActorNetwork, ops: Operations, given: Sequence[Any]) -> list[Any]:
    """Computes the model outputs, in the order of `outputs`.

    Args:
        network: The network, in float32.
        ops: The operations, which compute values or build a graph.
        given: The inputs, `[N, ...]` each, in the order of `inputs`.
    """
    architecture, state = network.architecture, list[Any]()
    if isinstance(architecture.encoder, MemoryCore):
        rows, previous_actions, previous_rewards, *state = given
        last, state = network.step(ops, rows, previous_actions, previous_rewards, state)
        parts = _split(architecture, ops, last)
    elif architecture.quantized:
        parts = network.quantized_parts(ops, given[0])
    else:
        parts = _split(architecture, ops, network.outputs(ops, given[0]))
    if architecture.head.continuous:
        parts[0] = ops.tanh(parts[0])
        if architecture.quantized:
            parts[0] = ops.quantized(parts[0], *TANH_RANGE)
    return [*parts, *state]


def _split(architecture: ActorArchitecture, ops: Operations, last: Any) -> list[Any]:
    count, size = architecture.head.continuous, architecture.head.size
    if count in (0, size):
        return [last]
    return [ops.part(last, 0, count), ops.part(last, count, size)]


def in_float32(network: ActorNetwork) -> ActorNetwork:
    """Returns the network with float32 weights, which all exports use."""
    if network.dtype == np.float32:
        return network
    weights = {name: values.astype(np.float32) for name, values in network.weights.items()}
    return ActorNetwork(network.architecture, weights)


def precision_refusal(format: str, possible: Sequence[str], precision: str) -> str | None:
    """Returns why a format does not support a precision, or None if it does.

    Args:
        format: Name of the format.
        possible: The precisions that the format supports.
        precision: The requested precision.
    """
    if precision not in possible:
        known = " or ".join(filter(None, (", ".join(possible[:-1]), possible[-1])))
        return f"{format} does not support {precision}, only {known}"
    return None
