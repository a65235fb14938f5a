"""Describes the actors of custom agents by built-in settings.

A custom agent may act with a built-in actor, for example if it only overrides a loss. Its
checkpoints then name the built-in settings class that describes this actor. The policy can be
loaded from the saved settings and weights alone, without importing the agent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from eagerly.agents import agent_names, config_class
from eagerly.agents.config import AgentConfig
from eagerly.policies.numpy_actor import NumpyActor, NumpyMemoryActor
from eagerly.settings import with_tuples

if TYPE_CHECKING:
    from eagerly.agents.agent import Agent


def _classes() -> dict[str, type[AgentConfig]]:
    kinds = (AgentConfig, *map(config_class, agent_names()))
    return {kind.__name__: kind for kind in kinds}


def built_in_settings(name: str, settings: Mapping[str, Any]) -> AgentConfig:
    """Builds the settings of a built-in class from those of an agent that extends it.

    Args:
        name: Name of the built-in class, as returned by `describing_class`.
        settings: Settings by name. Those that the class does not declare are ignored, and missing
            ones take their defaults.

    Raises:
        ValueError: If the class is not built in, or a setting is invalid.
    """
    if (kind := _classes().get(name)) is None:
        raise ValueError(f"settings_class must be one of {', '.join(_classes())}; got {name!r}")
    return kind(**{n: value for n, value in with_tuples(settings).items() if n in kind.SETTINGS})


def describing_class(agent: Agent) -> str | None:
    """Returns the name of the built-in settings class that describes an agent's actor.

    Returns None if the actor is a custom network, or differs from the actor that the agent's
    settings describe in this class.
    """
    actor, classes = agent.policy.snapshot(), _classes()
    if not isinstance(actor, NumpyActor | NumpyMemoryActor):
        return None
    name = next(k.__name__ for k in type(agent.config).__mro__ if classes.get(k.__name__) is k)
    try:
        config = built_in_settings(name, agent.config.flat())
        layouts = config.spaces(agent.observations.space, agent.actions.space)
        architecture = config.actor_architecture(*layouts)
    except ValueError:  # settings that the agent removed have invalid defaults in this class
        return None
    is_described = actor.network.architecture == architecture
    return name if is_described and actor.network.dtype == config.variable_dtype else None
