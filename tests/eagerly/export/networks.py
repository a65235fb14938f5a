"""Random action masks, and built-in actors with random weights, created without TensorFlow."""

from __future__ import annotations

import dataclasses
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from eagerly.agents.config import AgentConfig
from eagerly.policies.architecture import StateEmbedding
from eagerly.policies.network import ActorNetwork
from eagerly.policies.numpy_actor import numpy_actor
from eagerly.policies.policy import Policy
from eagerly.spaces import Actions, Observations
from tests.eagerly.export import drawn

BOX = spaces.Box(-1.0, 1.0, (3,))
UNEVEN = spaces.Box(np.array([-1.0, 0.0], np.float32), np.array([3.0, 0.5], np.float32))
NESTED = spaces.Dict(
    {
        "arm": spaces.Tuple([spaces.Box(-9, 9, (2, 2), np.float64), spaces.Discrete(3, start=1)]),
        "flags": spaces.MultiBinary((2, 2)),
        "number": spaces.Box(-5, 5, (), np.int32),
        "tool": spaces.MultiDiscrete([2, 3]),
    }
)
ACTIONS = spaces.Dict(
    {
        "bits": spaces.MultiBinary(2),
        "force": spaces.Box(-2.0, 5.0, (2, 1)),
        "pair": spaces.Tuple([spaces.Discrete(3, start=-1), spaces.MultiDiscrete([2, 4])]),
    }
)


def layout(
    config: AgentConfig, observation: gymnasium.Space, action: gymnasium.Space
) -> tuple[Observations, Actions]:
    return config.spaces(observation, action)


def made(
    observation: gymnasium.Space,
    action: gymnasium.Space,
    *,
    seed: int = 0,
    encoder: StateEmbedding | None = None,
    **settings: Any,
) -> tuple[Policy, ActorNetwork, tuple[Observations, Actions]]:
    """Creates a policy with random weights and normalization statistics."""
    config = AgentConfig(**{"hidden_sizes": (16, 12)} | settings)
    whole, actions = config.spaces(observation, action)
    laid = whole.actor, actions
    architecture = config.actor_architecture(*laid)
    assert architecture is not None
    if encoder is not None:
        architecture = dataclasses.replace(architecture, encoder=encoder)
    weights = drawn.weights(architecture, seed)
    if architecture.normalized:
        scaled = laid[0].scalable
        mean, scale = (f"observation_normalization/{part}" for part in ("mean", "scale"))
        weights[mean] = np.where(scaled, weights[mean], 0).astype(np.float32)
        weights[scale] = np.where(scaled, weights[scale], 1).astype(np.float32)
    network = ActorNetwork(architecture, weights)
    return Policy(numpy_actor(architecture, weights), whole, actions, 7, "best"), network, laid


def masks(space: gymnasium.Space, random: np.random.Generator) -> Any:
    """Draws a mask of an action space, in the format of `info["action_mask"]`."""
    if isinstance(space, spaces.Dict):
        return {key: masks(inner, random) for key, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(masks(inner, random) for inner in space.spaces)
    if isinstance(space, spaces.Box):
        return None
    if isinstance(space, spaces.MultiBinary):
        return random.integers(0, 3, space.shape).astype(np.int8)
    if len(space.shape) > 1:
        return None  # Gymnasium has no masks for a MultiDiscrete of several dimensions
    sizes = [int(space.n)] if isinstance(space, spaces.Discrete) else space.nvec.tolist()
    found = [random.integers(0, 2, size).astype(np.int8) for size in sizes]
    for each in found:
        each[random.integers(len(each))] = 1
    return found[0] if isinstance(space, spaces.Discrete) else tuple(found)
