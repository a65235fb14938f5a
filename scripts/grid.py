"""Grids of runs in TOML files: agents × environments × seeds × settings."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from eagerly.agents import agent_name, agent_names
from eagerly.errors import UsageError
from eagerly.scripts.batch import Planned
from eagerly.scripts.flags import parse_seeds
from eagerly.settings import Setting
from eagerly.storage.documents import read_toml
from eagerly.storage.run import readable_name
from eagerly.storage.run_settings import check_names, declared_settings, format_setting

_MOST = 10_000  # runs in a grid
_LONGEST = 40  # characters of a value in the name of a run
_OWN_PLACE = {"agent", "env", "seed"}  # axes whose values are always part of a run's path


def read_grid(path: Path, folder: Path) -> list[Planned]:
    """Reads the runs of the grid in a TOML file, see `runs_of`.

    Raises:
        RunError: If the file cannot be read, or a name or value in it is invalid.
    """
    return runs_of(read_toml(path, str(path)), folder, str(path))


def runs_of(grid: Mapping[str, Any], folder: Path, title: str) -> list[Planned]:
    """Returns the runs of a grid.

    Each key is `agent` or a setting. A list is an axis of the grid, so a setting whose value is a
    list needs a nested one, as in `hidden_sizes = [[64, 64], [256, 256]]`. `seed` may also be text
    such as "0..4". A table with the name of an agent contains settings and axes of this agent only.

    The runs of one learning curve have the same parent directory, whose name contains the agent,
    the environment and the values of the other axes: `td3-Pendulum-v1-tau-0.01/seed-0`.

    Args:
        grid: The grid.
        folder: Parent of all directories.
        title: The grid in messages.

    Returns:
        The runs, with all seeds of a learning curve in sequence.

    Raises:
        RunError: If a name or value is invalid.
    """
    found = dict(grid)
    agents = found.pop("agent", None)
    agents = [agents] if isinstance(agents, str) else agents
    if not (isinstance(agents, list) and agents and all(isinstance(a, str) for a in agents)):
        raise UsageError(f'{title} must name at least one agent, as in agent = ["td3", "ddpg"]')
    agents = [agent_name(agent) for agent in agents]
    known = {*agents, *agent_names()}
    tables = [n for n, v in found.items() if isinstance(v, dict) and agent_name(n) in known]
    own = {agent_name(name): found.pop(name) for name in tables}
    if unknown := sorted(own.keys() - {*agents}):
        raise UsageError(f"{title} has a table [{unknown[0]}], but agent does not contain it")
    runs: list[Planned] = []
    for agent in agents:
        declared = declared_settings(agent)
        given = {**found, **own.get(agent, {})}
        check_names(given, declared, title)
        if "env" not in given:
            raise UsageError(f'{title} must name an environment, as in env = "Pendulum-v1"')
        axes = {name: _values(title, declared[name], value) for name, value in given.items()}
        for settings in _products(axes):
            words = [
                f"-{name}-{_readable(value)}"
                for name, value in settings.items()
                if len(axes[name]) > 1 and name not in _OWN_PLACE
            ]
            name = readable_name(agent, str(settings.get("env", ""))) + "".join(words)
            place = Path(name, f"seed-{settings.get('seed', 0)}")
            runs.append(Planned(str(place), folder / place, agent, settings))
            if len(runs) > _MOST:
                raise UsageError(f"{title} must have at most {_MOST:,} runs: remove values")
    repeated = [name for name, count in Counter(run.name for run in runs).items() if count > 1]
    if repeated:
        raise UsageError(
            f"{title} has several runs called {repeated[0]}: remove repeated values, or divide the "
            "grid into several files"
        )
    return runs


def _values(title: str, setting: Setting, value: Any) -> list[Any]:
    """Returns the values of an axis, each validated by the setting."""
    if setting.name == "seed" and isinstance(value, str):
        try:
            return list(parse_seeds(value))
        except click.BadParameter as error:
            raise UsageError(f"{title}: seed: {error.message}") from error
    values = value if isinstance(value, list) else [value]
    if setting.kinds[0] is tuple and not all(isinstance(each, list | tuple) for each in values):
        example = f"{setting.name} = [{value}]" if isinstance(value, list) else "[[64, 64]]"
        raise UsageError(
            f"{title}: {setting.name} must be a list of lists, one list per value; got {value}: "
            f"for one value, write {example}"
        )
    if not values:
        raise UsageError(f"{title}: {setting.name} must have at least one value")
    try:
        return [setting.from_file(each) for each in values]
    except ValueError as error:
        raise UsageError(f"{title}: {error}") from error


def _products(axes: Mapping[str, list[Any]]) -> Iterator[dict[str, Any]]:
    """Yields all combinations of the values. The seed changes fastest."""
    names = sorted(axes, key="seed".__eq__)
    for values in itertools.product(*(axes[name] for name in names)):
        yield dict(zip(names, values, strict=True))


def _readable(value: Any) -> str:
    text = re.sub(r"^[^\w.+-]+|[^\w.+-]+$", "", format_setting(value))
    return re.sub(r"[^\w.+-]+", "-", text)[:_LONGEST]
