"""Agents, their pure losses and their settings.

Each agent is registered by one line in `_AGENTS` and imported on first use. Importing its settings
does not import TensorFlow, but importing the agent class does.
"""

from __future__ import annotations

import importlib
from typing import Any

from eagerly.errors import RunError
from eagerly.importing import import_object, split_name

# Agent name: (agent class, settings class).
_AGENTS = {
    "ddpg": ("ddpg:DDPG", "ddpg_config:DDPGConfig"),
    "td3": ("td3:TD3", "td3_config:TD3Config"),
    "td3_bc": ("td3_bc:TD3BC", "td3_bc_config:TD3BCConfig"),
    "td7": ("td7:TD7", "td7_config:TD7Config"),
}


def agent_names() -> tuple[str, ...]:
    """Returns the names of the registered agents."""
    return tuple(_AGENTS)


def agent_class(name: str) -> Any:
    """Imports an agent class.

    Args:
        name: A registered name, or "module:Class" for a custom agent.

    Raises:
        ValueError: If the name is unknown, cannot be imported or is not an agent class.
    """
    if name in _AGENTS:
        return _registered(_AGENTS[name][0])
    module, attribute = split_name(name, "agent", f"one of {', '.join(_AGENTS)}, or module:Class")
    # Before the user's module, which may import Keras: it then has the TensorFlow backend.
    from eagerly.agents.agent import Agent

    kind = import_object(module, attribute, f"agent {name}")
    if not (isinstance(kind, type) and issubclass(kind, Agent)):
        raise ValueError(f"agent {name} must be a subclass of eagerly.agents.agent.Agent")
    return kind


def agent_name(agent: str | type) -> str:
    """Returns the name by which a run imports an agent.

    Args:
        agent: The agent class, or its name; "TD3" is the same as "td3".

    Raises:
        RunError: If the class cannot be imported by name.
    """
    if isinstance(agent, str):
        return agent.lower() if agent.lower() in _AGENTS else agent
    place = f"{agent.__module__}:{agent.__qualname__}"
    for name, (home, _) in _AGENTS.items():
        if place == f"eagerly.agents.{home}":
            return name
    if agent.__module__ == "__main__" or "." in agent.__qualname__:
        raise RunError(
            f"{agent.__qualname__} must be defined at the top level of an importable module, "
            f"because runs are resumed and loaded by name; got {agent.__module__}: move it to a "
            "separate file and import it"
        )
    return place


def config_class(name: str) -> Any:
    """Imports an agent's settings class, without TensorFlow if the agent is registered.

    Args:
        name: As in `agent_class`.

    Raises:
        ValueError: As in `agent_class`.
    """
    return _registered(_AGENTS[name][1]) if name in _AGENTS else agent_class(name).Config


def _registered(place: str) -> Any:
    module, attribute = place.split(":")
    return getattr(importlib.import_module(f"eagerly.agents.{module}"), attribute)
