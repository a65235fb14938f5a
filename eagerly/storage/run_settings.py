"""The combined settings of a run and its agent: building, saving and formatting."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from eagerly.agents import agent_names, config_class
from eagerly.agents.config import AgentConfig
from eagerly.errors import UsageError
from eagerly.importing import factory_name, split_name
from eagerly.settings import NONE, Setting, flag_name, with_tuples
from eagerly.storage.config import RunConfig, hardware_defaults
from eagerly.storage.trust import FACTORIES
from eagerly.suggestions import suggestion

# Settings that may differ between the runs of one learning curve.
COMPARABLE = frozenset(
    name
    for name, each in {**RunConfig.SETTINGS, **AgentConfig.SETTINGS}.items()
    if each.resumable or each.comparable
)
_RESERVED = {"agent", "preset"}


def declared_settings(agent: str) -> dict[str, Setting]:
    """Returns the declarations of all settings of a run with this agent, by name.

    Raises:
        RunError: If the agent cannot be imported, redeclares a run setting, or has `RUN_DEFAULTS`
            of other settings.
    """
    try:
        config = config_class(agent)
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from error
    if taken := {*RunConfig.SETTINGS, *_RESERVED} & config.SETTINGS.keys():
        raise UsageError(f"{agent} redeclares the run setting {min(taken)}: rename it")
    if wrong := config.RUN_DEFAULTS.keys() - RunConfig.SETTINGS.keys():
        raise UsageError(
            f"RUN_DEFAULTS of {agent} must contain run settings; got {min(wrong)}: correct its "
            "name, or move a setting of the agent to DEFAULTS"
        )
    return {**RunConfig.SETTINGS, **config.SETTINGS}


def new_run_defaults(agent: str, given: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """Returns the defaults of all settings for a new run with this agent, without a preset.

    Args:
        agent: Name of the agent.
        given: The settings that are set explicitly. With `hardware`, some defaults depend on them.
    """
    defaults = {name: each.default for name, each in declared_settings(agent).items()}
    return defaults | _run_defaults(agent, given)


def _run_defaults(agent: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the defaults of run settings that the agent, `hardware` or `offline` changes."""
    of_kind = hardware_defaults(given) if given.get("hardware") else {}
    if given.get("offline"):
        of_kind["policy_checkpoints"] = False  # they assess policies in collected episodes
    return {**config_class(agent).RUN_DEFAULTS, **of_kind}


def as_saved(*configs: Any) -> dict[str, Any]:
    """Returns settings in their saved form, with factories replaced by their names."""
    return {name: _as_saved(value) for config in configs for name, value in config.flat().items()}


def _as_saved(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_as_saved, value))
    return factory_name(value) if callable(value) else value


def build(
    agent: str, settings: Mapping[str, Any], *, is_new: bool = False
) -> tuple[RunConfig, Any]:
    """Builds the settings of a run and of its agent.

    With `is_new`, missing settings take the defaults of a new run with this agent, and of
    `hardware_defaults`, which take precedence.

    Raises:
        RunError: If a setting is unknown, missing or out of range.
    """
    known, config = declared_settings(agent), config_class(agent)
    values = {**_run_defaults(agent, settings), **settings} if is_new else settings
    check_names(values, known)
    values = with_tuples(values)
    of_agent = {n: values.pop(n) for n in config.SETTINGS if n in values}
    try:
        return RunConfig(**values), config(**of_agent)
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from error


def check_names(names: Iterable[str], known: Collection[str], where: str = "") -> None:
    """Raises a `RunError` if a name is not among the known settings, with suggestions.

    Args:
        names: The names.
        known: The known names.
        where: The file that contains the names, or "".
    """
    if unknown := sorted({*names} - {*known}):
        about = f"{where}: " if where else ""
        hints = filter(None, (_hint(name, known) for name in unknown))
        raise UsageError(" ".join([f"{about}unknown settings: {', '.join(unknown)}.", *hints]))


def _hint(name: str, known: Collection[str]) -> str:
    """Returns a sentence that helps with an unknown setting, or ""."""
    if name in agent_names():
        return f"{name} is an agent."
    return agents_with(name) or suggestion(name, {*known, "run_dir"} - {name})


def agents_with(name: str) -> str:
    """Returns a sentence that names the agents with a setting, or ""."""
    owners = [agent for agent in agent_names() if name in config_class(agent).SETTINGS]
    return f"{name} is a setting of {', '.join(owners)}." if owners else ""


def check_saved(document: Mapping[str, Any]) -> RunConfig:
    """Validates `config.json` without importing the agent, and returns the run settings.

    Raises:
        ValueError: If a run setting is missing or invalid, or the name of an agent or factory is
            invalid.
    """
    settings, agent = document["settings"], document["agent"]
    if wrong := sorted(_RESERVED & settings.keys()):
        raise ValueError(f"its settings contain reserved names: {', '.join(wrong)}")
    if "env" not in settings:
        raise ValueError("its settings have no env")
    run = RunConfig(
        **with_tuples({n: value for n, value in settings.items() if n in RunConfig.SETTINGS})
    )
    if agent not in agent_names():
        split_name(agent, "agent", f"one of {', '.join(agent_names())}, or module:Class")
    AgentConfig(**{name: settings[name] for name in FACTORIES if name in settings})
    return run


def format_setting(value: Any) -> str:
    """Returns the form of a value in messages; an empty one is "none"."""
    if isinstance(value, dict):
        return json.dumps(value)
    if isinstance(value, tuple | list):
        return ",".join(map(str, value)) or NONE
    return NONE if value is None else str(value) or NONE


def flag_words(given: Mapping[str, Any]) -> list[str]:
    """Converts settings by name to command-line arguments."""
    words = []
    for name, value in given.items():
        flag = flag_name(name)
        if isinstance(value, bool):
            words.append(flag if value else f"--no-{flag[2:]}")
        elif isinstance(value, tuple | list) and value and isinstance(value[0], str):
            words += [word for each in value for word in (flag, each)]
        else:
            words += [flag, value if isinstance(value, str) else format_setting(value)]
    return words
