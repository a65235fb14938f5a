"""What every exported model takes and gives, whatever file it is in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from eagerly.policies.architecture import ActorArchitecture, MemoryCore
from eagerly.policies.network import ActorNetwork
from eagerly.policies.operations import Operations
from eagerly.policies.quantization import MOST, TANH_SCALE

# Names and shapes without their batch axis, in the order in which they are passed.
Tensors = dict[str, tuple[int, ...]]
# The tanh of quantised actions is on the grid of this range, whose scale is 1/128.
TANH_RANGE = (-1.0, MOST * TANH_SCALE)


def inputs(architecture: ActorArchitecture) -> Tensors:
    """Returns what a model takes: scaled rows without their mask, and what a memory needs."""
    found: Tensors = {"observation": (architecture.visible,)}
    if isinstance(core := architecture.encoder, MemoryCore):
        found |= {"previous_action": (architecture.head.size,), "previous_reward": ()}
        found |= {f"state_{index}": shape for index, shape in enumerate(core.state_shapes())}
    return found


def outputs(architecture: ActorArchitecture) -> Tensors:
    """Returns what a model gives: actions after their tanh, raw logits, and the next state."""
    head, found = architecture.head, Tensors()
    if head.continuous:
        found["action"] = (head.continuous,)
    if head.choices:
        found["logits"] = (sum(head.choices),)
    if isinstance(core := architecture.encoder, MemoryCore):
        found |= {f"next_state_{index}": shape for index, shape in enumerate(core.state_shapes())}
    return found


def described(tensors: Tensors) -> list[dict[str, Any]]:
    """Describes float32 tensors of a batch of one."""
    return [
        {"name": name, "shape": [1, *shape], "dtype": "float32"} for name, shape in tensors.items()
    ]


def computed(network: ActorNetwork, ops: Operations, given: Sequence[Any]) -> list[Any]:
    """Computes what a model gives of what it takes, both in the order of `outputs` and `inputs`.

    Args:
        network: The network, in float32.
        ops: What computes, or builds a graph.
        given: The inputs, `[N, ...]` each.
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
    """Returns a network whose weights are float32, as those of every export are."""
    if network.dtype == np.float32:
        return network
    weights = {name: values.astype(np.float32) for name, values in network.weights.items()}
    return ActorNetwork(network.architecture, weights)


def refusal_of_images(architecture: ActorArchitecture) -> str | None:
    """Says in a sentence why an actor that sees images cannot be exported, or returns None."""
    if not architecture.pixels.any():
        return None
    return (
        "an actor that sees images cannot be exported: exports take observations of numbers and "
        "choices; load_policy acts on images with NumPy alone"
    )


def refusal_of_precision(format: str, precision: str, possible: Sequence[str]) -> str | None:
    """Says in a sentence why a format has no such precision, or returns None."""
    if precision in possible:
        return None
    choices = " or ".join((", ".join(possible[:-1]), possible[-1]) if possible[1:] else possible)
    return f"{format} cannot be exported in {precision}: it can in {choices}"
