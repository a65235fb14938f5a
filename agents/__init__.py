"""What learns: the agents, their pure losses and their settings.

An agent is registered by one line below and imported when it is asked for.
"""

from __future__ import annotations

import importlib
from typing import Any

from eagerly.importing import import_module, split_name

_AGENTS = {
    "ddpg": "eagerly.agents.ddpg:DDPG",
    "td3": "eagerly.agents.td3:TD3",
}


def agent_names() -> tuple[str, ...]:
    """Lists the registered agents."""
    return tuple(_AGENTS)


def agent_class(name: str) -> Any:
    """Imports an agent; its settings class is its attribute `Config`.

    Args:
        name: A registered name, or "module:Class" for an agent of somebody's own.

    Raises:
        ValueError: If no agent has that name, or what it names is none.
    """
    if name in _AGENTS:
        module, attribute = _AGENTS[name].split(":")
        return getattr(importlib.import_module(module), attribute)
    module, attribute = split_name(name, "agent", f"one of {', '.join(_AGENTS)}, or module:Class")
    try:
        kind = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"agent {name} cannot be imported: {error}. Run from the directory that holds it, or "
            "put that on PYTHONPATH"
        ) from error
    from eagerly.agents.agent import Agent

    if not (isinstance(kind, type) and issubclass(kind, Agent)):
        raise ValueError(f"agent {name} must be a subclass of eagerly.agents.agent.Agent")
    return kind
