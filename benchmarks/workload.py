"""The training workload of the benchmarks: random transitions of HalfCheetah's dimensions."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from eagerly import ReplayBuffer, Transition
from eagerly.agents import agent_class

OBSERVATION_SIZE, ACTION_SIZE = 17, 6


def cheetah_agent(name: str, seed: int = 0, **settings: Any) -> Any:
    """Creates an agent for HalfCheetah's spaces."""
    box, kind = gymnasium.spaces.Box, agent_class(name)
    spaces = box(-np.inf, np.inf, (OBSERVATION_SIZE,)), box(-1, 1, (ACTION_SIZE,))
    return kind(*spaces, kind.Config(**settings), seed=seed)


def random_buffer(count: int, capacity: int, seed: int = 0) -> ReplayBuffer:
    """Creates a buffer with `count` random transitions."""
    random = np.random.default_rng(seed)
    buffer = ReplayBuffer(capacity, OBSERVATION_SIZE, ACTION_SIZE, seed=seed)
    buffer.add(
        Transition(
            random.normal(size=(count, OBSERVATION_SIZE)),
            random.uniform(-1, 1, (count, ACTION_SIZE)),
            random.normal(size=count),
            np.full(count, 0.99),
            random.normal(size=(count, OBSERVATION_SIZE)),
        )
    )
    return buffer
