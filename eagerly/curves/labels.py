"""Labels of runs in figures and tables: the agent, and the settings that set a run apart."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from eagerly.storage.run_settings import COMPARABLE, format_setting

OVERRIDES = "--override"  # key of `algorithm_overrides` among the settings of a run
_MOST = 3  # settings in a label
# Every label shows the agent and the overrides, and every panel the environment.
_SHOWN = {"agent", "env", OVERRIDES}

Found = tuple[Path, Mapping[str, Any]]


def labels(runs: Sequence[Found]) -> list[str]:
    """Returns the label of each run. Within an environment, runs of one curve have equal labels.

    Runs of one curve have the same agent, the same settings and the same `OVERRIDES`, except for
    settings that are `COMPARABLE`. A label consists of the agent and the settings whose values
    differ from the most frequent value among the curves of this agent in this environment. If these
    are more than three settings, the label is the name of the run directory instead. The steps of
    overrides are appended.

    Args:
        runs: Run directories with all their settings and their `OVERRIDES`.
    """
    curves: dict[Hashable, list[Found]] = {}
    for path, settings in runs:
        key = tuple((name, _key(settings[name])) for name in sorted(settings.keys() - COMPARABLE))
        curves.setdefault(key, []).append((path, settings))
    cells: dict[tuple[str, str], list[list[Found]]] = {}
    for curve in curves.values():
        settings = curve[0][1]
        cells.setdefault((settings["env"], settings["agent"]), []).append(curve)
    labeled: dict[tuple[str, str], list[list[Found]]] = {}
    for (env, agent), alike in cells.items():
        for curve, words in zip(alike, _differences(alike), strict=True):
            text = ", ".join([agent, *words]) if len(words) <= _MOST else _folder_name(curve)
            if overrides := curve[0][1][OVERRIDES]:
                text += f" (overridden at {', '.join(str(step) for step, _ in overrides)})"
            labeled.setdefault((env, text), []).append(curve)
    found = {}
    for (_, text), same in labeled.items():
        for curve in same:
            unique = text if len(same) == 1 else f"{text} ({curve[0][0]})"
            found.update(dict.fromkeys((path for path, _ in curve), unique))
    return [found[path] for path, _ in runs]


def algorithm_overrides(history: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Returns the step and the changes of each override that changed the algorithm of a run.

    Args:
        history: The overrides, as stored in `config.json`.
    """
    found = []
    for entry in history:
        changes = {n: each for n, each in entry["overridden"].items() if n not in COMPARABLE}
        if changes and entry["steps"]:  # before its first step, a run has learned nothing
            found.append([entry["steps"], changes])
    return found


def _differences(curves: Sequence[Sequence[Found]]) -> list[list[str]]:
    """Returns the settings of each curve that differ from the majority, as text.

    Without a majority, because several values are equally frequent, every curve shows its value.
    """
    several = [curve[0][1] for curve in curves]
    shown: list[list[str]] = [[] for _ in several]
    # Runs can lack a setting, because a newer release or anyone else wrote the other ones.
    names = dict.fromkeys(name for settings in several for name in settings)
    for name in (n for n in names if n not in COMPARABLE | _SHOWN):
        values = {_key(settings.get(name)): settings.get(name) for settings in several}
        counts = Counter(_key(settings.get(name)) for settings in several)
        usual = [key for key, count in counts.items() if count == max(counts.values())]
        texts = {key: _text(name, value, ".3g") for key, value in values.items()}
        if len(set(texts.values())) < len(texts):
            texts = {key: _text(name, value, "") for key, value in values.items()}
        for settings, words in zip(several, shown, strict=True):
            if [_key(settings.get(name))] != usual:
                words.append(texts[_key(settings.get(name))])
    return shown


def _key(value: Any) -> Hashable:
    """Returns a hashable object that is equal for equal values of a setting."""
    if isinstance(value, list | tuple | dict):
        return json.dumps(value, sort_keys=True)
    return value


def _text(name: str, value: Any, precision: str) -> str:
    """Returns a setting as part of a label. Floats are formatted with this precision."""
    if value is True:
        return name
    if value is None or value is False or value in ("", {}, (), []):
        return f"no {name}"
    if isinstance(value, float):
        return f"{name} {value:{precision}}"
    return f"{name} {format_setting(value)}"


def _folder_name(curve: Sequence[Found]) -> str:
    """Returns the name that the directories of several runs share, without their seeds."""
    names, bare = [], set()
    for path, settings in curve:
        seed, whole = rf"(seed[-_]?)?{settings['seed']}", path.absolute()
        names.append(whole.parent.name if re.fullmatch(seed, whole.name) else whole.name)
        bare.add(re.sub(rf"[-_]{seed}$", "", names[-1]))
    if len(set(names)) > 1 and len(bare) == 1:
        return bare.pop() or names[0]
    return names[0]
