"""The training workload of the benchmarks: random transitions of HalfCheetah's dimensions."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from eagerly import ReplayBuffer, Transition
from eagerly.agents import agent_class
from eagerly.training.hardware import set_threads

OBSERVATION_SIZE, ACTION_SIZE = 17, 6


def cheetah_agent(
    name: str, seed: int = 0, *, intra: int = 2, inter: int = 2, **settings: Any
) -> Any:
    """Creates an agent for HalfCheetah's spaces.

    Args:
        name: Name of the agent.
        seed: Seed of the agent.
        intra: Number of TensorFlow threads within operations, the same for all agents.
        inter: Number of TensorFlow threads between operations, the same for all agents.
        settings: Settings of the agent.
    """
    set_threads(intra, inter)
    box, kind = gymnasium.spaces.Box, agent_class(name)
    spaces = box(-np.inf, np.inf, (OBSERVATION_SIZE,)), box(-1, 1, (ACTION_SIZE,))
    return kind(*spaces, kind.Config(**settings), seed=seed)


def random_transitions(count: int, random: np.random.Generator) -> Transition:
    """Returns random transitions."""
    return Transition(
        random.normal(size=(count, OBSERVATION_SIZE)),
        random.uniform(-1, 1, (count, ACTION_SIZE)),
        random.normal(size=count),
        np.full(count, 0.99),
        random.normal(size=(count, OBSERVATION_SIZE)),
    )


def random_buffer(count: int, capacity: int, seed: int = 0) -> ReplayBuffer:
    """Creates a buffer with `count` random transitions."""
    buffer = ReplayBuffer(capacity, OBSERVATION_SIZE, ACTION_SIZE, seed=seed)
    buffer.add(random_transitions(count, np.random.default_rng(seed)))
    return buffer
