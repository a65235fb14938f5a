"""Hindsight replay for an agent and an environment whose goals it needs."""

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
    """Makes what turns steps into transitions, with other goals where settings ask for them.

    Args:
        agent: The agent.
        env: An environment such as it acts in; hindsight resets and steps it, and keeps it.
        name: Its name in messages.
        seed: Seed of the run.

    Returns:
        The accumulator, and what it needs of each step's `info`.

    Raises:
        RunError: If hindsight is asked for and the environment has not what it needs.
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
