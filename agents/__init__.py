"""What learns: the agents, their pure losses and their settings.

An agent is registered by one line below and imported when it is asked for.
"""

from __future__ import annotations

import importlib
from typing import Any

_AGENTS = {
    "ddpg": "eagerly.agents.ddpg:DDPG",
    "td3": "eagerly.agents.td3:TD3",
}


def agent_names() -> tuple[str, ...]:
    """Lists the registered agents."""
    return tuple(_AGENTS)


def agent_class(name: str) -> Any:
    """Imports a registered agent; its settings class is its attribute `Config`.

    Raises:
        ValueError: If no agent has that name.
    """
    if name not in _AGENTS:
        raise ValueError(f"agent must be one of {', '.join(_AGENTS)}; got {name!r}")
    module, attribute = _AGENTS[name].split(":")
    return getattr(importlib.import_module(module), attribute)
