"""Sets up hindsight replay for an agent and an environment with goals."""

from __future__ import annotations

from typing import Any

import gymnasium

from eagerly.agents.agent import Agent
from eagerly.agents.agent_settings import NO_HINDSIGHT
from eagerly.buffers import Accumulator, Hindsight
from eagerly.environments.goals import Goals
from eagerly.seeding import Stream, seed_sequence


def make_hindsight(
    agent: Agent, env: gymnasium.Env[Any, Any], name: str, *, seed: int
) -> tuple[Accumulator, tuple[str, ...]]:
    """Creates the agent's accumulator, with hindsight replay if enabled in its settings.

    Args:
        agent: The agent.
        env: An instance of the agent's environment. Hindsight replay resets and steps it, and keeps
            a reference to it.
        name: The environment's name in messages.
        seed: The seed of the run.

    Returns:
        The accumulator, and the keys of `info` that it needs from each step.

    Raises:
        RunError: If hindsight replay is enabled and the environment does not support it.
    """
    config, inside = agent.config, agent.accumulator()
    if config.hindsight == NO_HINDSIGHT:
        return inside, ()
    goals = Goals(env, name, agent.observations)
    hindsight = Hindsight(
        inside,
        achieved=goals.achieved,
        desired=goals.desired,
        outcomes=goals.outcomes,
        discount=config.discount,
        steps=config.n_step,
        strategy=config.hindsight,
        goals=config.hindsight_goals,
        seed=seed_sequence(seed, Stream.HINDSIGHT),
    )
    return hindsight, goals.info_keys
