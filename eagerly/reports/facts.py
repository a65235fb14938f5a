"""Facts about the runs of a report: settings that differ, overrides and versions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from eagerly.curves.groups import RunGroup
from eagerly.curves.labels import OVERRIDES
from eagerly.storage.manifest import published
from eagerly.storage.run_settings import format_setting

_FEW = 5  # values or runs listed in a cell
_ELSEWHERE = {"seed", "env", OVERRIDES}  # settings in other tables
NO_VALUE = "–"


def differing_settings(groups: Sequence[RunGroup]) -> list[tuple[str, list[str]]]:
    """Returns the settings whose values differ between runs, with their values in each group.

    Runs without a setting, because their algorithm does not have it, do not count as different.
    Tables contain no settings.
    """
    runs = [curve.settings for group in groups for curve in group.curves if curve.settings]
    found = []
    for name in dict.fromkeys(["agent", *(name for settings in runs for name in settings)]):
        values = {format_setting(settings[name]) for settings in runs if name in settings}
        if len(values) > 1 and name not in _ELSEWHERE:
            cells = []
            for group in groups:
                of_group = [curve.settings for curve in group.curves]
                cells.append(_listed(format_setting(s[name]) for s in of_group if name in s))
            found.append((name, cells))
    return found


def overrides(groups: Sequence[RunGroup]) -> list[tuple[str, Path, str, str, str]]:
    """Returns the label, run directory, step, time and changes of each override, as text."""
    return [
        (
            group.label,
            curve.path,
            f"{entry['steps']:,}",
            _time(entry.get("time")),
            ", ".join(
                f"{name} {format_setting(old)} → {format_setting(new)}"
                for name, (old, new) in entry["overridden"].items()
            ),
        )
        for group in groups
        for curve in group.curves
        for entry in curve.history
    ]


def conditions_of_runs(groups: Sequence[RunGroup]) -> dict[Path, Mapping[str, Any]]:
    """Reads the conditions in the newest checkpoint of each run: versions, device and threads."""
    paths = [curve.path for group in groups for curve in group.curves if curve.settings]
    manifests = {path: published(path) for path in paths}
    return {path: found[-1].conditions for path, found in manifests.items() if found}


def values_and_runs(conditions: Mapping[Path, Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Returns the name and each value of a condition, with the runs that have this value."""
    rows = []
    for name in dict.fromkeys(name for each in conditions.values() for name in each):
        runs: dict[str, list[str]] = {}
        for path, each in conditions.items():
            value = format_setting(each[name]) if name in each else NO_VALUE
            runs.setdefault(value.replace(",", ", "), []).append(str(path))
        for value, having in runs.items():
            every = len(having) == len(conditions)
            rows.append((name, value, "all" if every else _listed(having)))
    return rows


def _listed(values: Iterable[str]) -> str:
    """Returns different values as text, abbreviated if there are many."""
    different = list(dict.fromkeys(values))
    shown = ", ".join(different[:_FEW]) or NO_VALUE
    more = len(different) - _FEW
    return f"{shown} and {more} more" if more > 0 else shown


def _time(value: Any) -> str:
    """Returns an ISO time in UTC as text, or a dash if it is invalid."""
    try:
        return datetime.fromisoformat(value).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (TypeError, ValueError, OverflowError):
        return NO_VALUE
