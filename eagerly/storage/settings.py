"""The settings of a run and its agent together: as typed, as kept, as compared."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from eagerly.agents import agent_names, config_class
from eagerly.agents.config import AgentConfig
from eagerly.conditions import flag_name
from eagerly.environments.factory import factory_name
from eagerly.errors import RunError
from eagerly.importing import split_name
from eagerly.settings import settings_of, situation_of
from eagerly.storage.config import RunConfig
from eagerly.storage.presets import preset_settings
from eagerly.storage.trust import FACTORIES


def as_saved(config: Any) -> dict[str, Any]:
    """Returns settings as they are kept and compared: factories by their names."""
    return {name: factory_name(v) if callable(v) else v for name, v in config.flat().items()}


def with_preset(
    agent: str, given: Mapping[str, Any], env: str, preset: str | None
) -> tuple[dict[str, Any], str]:
    """Puts the settings of a preset under those that were given.

    Args:
        agent: Name of the agent.
        given: Settings by name; `preset` among them names one.
        env: The environment, by its name.
        preset: The preset where none is given; None for none.

    Returns:
        The settings, and in words which preset stands under them, or "".
    """
    settings = dict(given)
    name = settings.pop("preset", preset)
    if name is None:
        return settings, ""
    try:
        under, title = preset_settings(agent, name, env)
    except ValueError as error:
        raise RunError(str(error)) from error
    kinds = RunConfig, config_class(agent)
    known = {name: each for kind in kinds for name, each in settings_of(kind).items()}
    both = {**under, **settings}
    situation = situation_of(both, *kinds)
    idle = {name for name in under if known[name].hindrance(situation)} - settings.keys()
    both = {name: value for name, value in both.items() if name not in idle}
    acts = [f"{n} {value}" for n, value in under.items() if n not in settings and n not in idle]
    line = f"{title}: {', '.join(acts) or 'the defaults'}"
    other = [f"{key} {settings[key]}" for key in under if key in settings]
    return both, line + (f"; given: {', '.join(other)}" if other else "")


def build(
    agent: str, settings: Mapping[str, Any], *, is_new: bool = False
) -> tuple[RunConfig, Any]:
    """Makes the settings of a run and of its agent.

    Args:
        agent: Name of the agent.
        settings: Settings by name.
        is_new: Whether what is not given has the defaults of a new run with this agent.

    Raises:
        RunError: If one is unknown, missing or out of range.
    """
    try:
        values = {n: tuple(v) if isinstance(v, list) else v for n, v in settings.items()}
        parts = []
        config = config_class(agent)
        if is_new:
            values = {**config.RUN_DEFAULTS, **values}
        for kind in (RunConfig, config):
            mine = {name: values.pop(name) for name in settings_of(kind) if name in values}
            parts.append(kind.from_flat(**mine))
        if values:
            raise ValueError(f"unknown settings: {', '.join(sorted(values))}")
    except (TypeError, ValueError) as error:
        raise RunError(str(error)) from error
    return parts[0], parts[1]


def check_sections(document: Mapping[str, Any]) -> None:
    """Checks the settings in a `config.json` as far as that is possible without its agent.

    `build` does the rest; here is made sure that a setting stands once, and where it belongs: what
    is looked at before anything is imported is what is used afterwards.

    Raises:
        ValueError: If a setting of the run is unknown, missing, of a wrong type or out of range; or
            one stands in the wrong section, or names no agent.
    """
    run, agent, name = document["run"], document["agent_settings"], document["agent"]
    if unknown := sorted(run.keys() - settings_of(RunConfig).keys()):
        raise ValueError(f"unknown settings of the run: {', '.join(unknown)}")
    if wrong := sorted(agent.keys() & (settings_of(RunConfig).keys() | {"agent", "preset"})):
        raise ValueError(f"among the settings of the agent: {', '.join(wrong)}")
    if "env" not in run:
        raise ValueError("it has no env")
    RunConfig(**run)
    if name not in agent_names():
        split_name(name, "agent", f"one of {', '.join(agent_names())}, or module:Class")
    for role in FACTORIES:
        settings_of(AgentConfig)[role].check(agent.get(role, ""))


def format_setting(value: Any) -> str:
    """Writes a setting's value as it is typed on the command line."""
    if isinstance(value, dict):
        return json.dumps(value)
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def flag_words(given: Mapping[str, Any]) -> list[str]:
    """Writes settings as the words of a command line.

    Args:
        given: Values by name.
    """
    words = []
    for name, value in given.items():
        flag = flag_name(name)
        if isinstance(value, bool):
            words.append(flag if value else f"--no-{flag[2:]}")
        else:
            words += [flag, format_setting(value)]
    return words
