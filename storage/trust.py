"""Whose run directories may name what is imported: the user's own, and those that are trusted.

A run directory may come from anyone, and its settings may name modules: an agent, factories of
models, the package of an environment. None of them is imported because a run directory names it.
The user must name it, too, trust the directory, or have trained it: training remembers the
directory, by its path, what it names and where that lies, in a list of the user's own.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import platformdirs

from eagerly.importing import FACTORY, place_of
from eagerly.storage.files import RunFiles

FACTORIES = ("actor", "critic", "models")
IMPORTED = ("agent", "env", *FACTORIES)
_SHOWN = 200  # characters of what a stranger's run names


def named_by(document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what the settings of a run name that somebody must vouch for.

    These are modules that would be imported; arguments of the environment that hold text: what it
    means, a file to be read or written, a module, only the environment knows; and another run
    directory. Factories that were given in Python are never imported by their names.

    Args:
        document: What `config.json` holds, checked.
    """
    run, agent = document["run"], document["agent_settings"]
    named = {"agent": document["agent"], "env": run["env"]}
    named |= {name: agent[name] for name in FACTORIES if agent.get(name)}
    named = {name: value for name, value in named.items() if _is_import(name, value)}
    if _holds_text(run.get("env_kwargs")):
        named["env_kwargs"] = run["env_kwargs"]
    if run.get("init_from"):
        named["init_from"] = run["init_from"]
    return named


def modules_of(named: Mapping[str, Any]) -> dict[str, str]:
    """Returns the module of each name that is one's, by the setting that names it."""
    return {
        role: value.rpartition(":")[0] if role == "env" else value.partition(":")[0]
        for role, value in named.items()
        if role in IMPORTED
    }


def _is_import(name: str, value: str) -> bool:
    if name == "env":
        package = value.rpartition(":")[0]
        return bool(package) and not value.startswith(FACTORY) and package not in _plugins()
    return ":" in value and (name == "agent" or not value.startswith(FACTORY))


def _plugins() -> set[str]:
    """The modules that installed distributions let Gymnasium import whenever it is imported."""
    found = importlib.metadata.entry_points(group="gymnasium.envs")
    return {plugin.module.removesuffix(".__init__") for plugin in found}


def _holds_text(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_holds_text, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_holds_text, value))
    return isinstance(value, str)


def is_trusted(path: Path, named: Mapping[str, Any]) -> bool:
    """Whether this user has trained the run at this path while it named the same."""
    return RunFiles(_list()).is_file(_entry(path, named))


def trust(path: Path, named: Mapping[str, Any]) -> None:
    """Remembers a run directory, and what it names.

    Raises:
        OSError: If the user's list cannot be written.
    """
    entry = {"path": str(path.resolve()), "names": named, "places": _places(named)}
    folder = _list()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    RunFiles(folder).write(_entry(path, named), [json.dumps(entry, indent=1).encode() + b"\n"])


def _list() -> Path:
    return platformdirs.user_state_path("eagerly", appauthor=False) / "trusted"


def _entry(path: Path, named: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(os.fsencode(path.resolve()) + b"\0")
    digest.update(json.dumps([named, _places(named)], sort_keys=True).encode())
    return f"{digest.hexdigest()}.json"


def _places(named: Mapping[str, Any]) -> dict[str, str]:
    """Where each module lies, as in another working directory the same name may be another's."""
    places = {}
    for role, module in modules_of(named).items():
        try:
            places[role] = place_of(module)
        except (ImportError, ValueError):
            places[role] = "nowhere"
    return places


def would_import(named: Mapping[str, Any]) -> str:
    """Says in words what would happen for a run directory that names this."""
    places = _places(named)
    imports = [
        f"{named[role]} ({role}{f', in {place}' if place else ''})"
        for role, place in places.items()
    ]
    found = ["import " + ", ".join(imports)] if imports else []
    if "env_kwargs" in named:
        found.append(f"give its environment {json.dumps(named['env_kwargs'])}")
    if "init_from" in named:
        found.append(f"begin with the policy of {json.dumps(named['init_from'])}")
    text = " and ".join(found)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
