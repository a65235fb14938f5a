"""Reads the learning curves of run directories and tables, and groups the runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from eagerly.curves.filters import matching
from eagerly.curves.groups import Curve, RunGroup, Skip, longest_copies
from eagerly.curves.labels import Found
from eagerly.curves.reading import METRICS, curve_of_table, curves_of_runs
from eagerly.errors import RunError, UsageError
from eagerly.storage.config import RunConfig
from eagerly.storage.files import run_directories
from eagerly.storage.run import whole_settings
from eagerly.storage.run_document import read_settings
from eagerly.storage.run_settings import COMPARABLE, declared_settings

# Tables are named `label-Environment-v5-seed.csv`.
_NAME = re.compile(r"(?P<label>.+)-(?P<env>[^-]+-v\d+)-(?P<seed>\d+)")
_NOTHING: Mapping[str, Any] = MappingProxyType({})


def read_groups(
    paths: Iterable[Path],
    *,
    metric: str = "return",
    times: bool = False,
    env: Collection[str] = (),
    filter: Mapping[str, Any] = _NOTHING,
    skip: Skip = lambda path, reason: None,
    trust: bool = False,
    skip_invalid: bool = False,
) -> list[RunGroup]:
    """Reads and groups the runs in run directories, tables, or folders that contain them.

    If runs of the same environment and agent have different settings, their labels show these
    settings; see `labels`. Runs without evaluations are skipped.

    Args:
        paths: Run directories, tables and folders. Duplicate paths are read once.
        metric: "return", "success", or the tag of a scalar in the event files of run directories.
        times: Whether to read the time of each evaluation from the event files of run directories.
        env: Environments to read; empty for all.
        filter: Values of settings, as in `matching`. All tables are skipped.
        skip: Called with the path of each skipped run or table, and the reason: it is damaged, has
            no evaluations, no such metric or no settings to filter, or has a copy that is at least
            as long. Also called with the trials of a study whose finalists are shown.
        trust: Whether to import custom agents named in run directories, even if another user
            created these directories. Custom agents are imported only to look up the defaults of
            missing settings: if the runs of an agent have different sets of settings, or all lack
            a setting of `filter` that every run has today.
        skip_invalid: Whether to skip a damaged table, or a run or table that has no value of the
            metric or names an agent that cannot be imported, instead of raising an error.

    Raises:
        RunError: If a path holds neither a run nor a table, all runs are damaged, a table is
            damaged, a table and another path hold the same run, an untrusted agent must be
            imported, an environment does not occur, no run matches the filter, or no run has the
            metric.
    """
    items: dict[Path, Path] = {}
    for path in paths:
        found = _found(path)
        for trials in _trials_of_compared_studies(path, found):
            skip(trials, "its runs selected the finalists: pass it to show them")
            found = [item for item in found if trials not in item.parents]
        if not found:
            why = "contains neither a run nor an evaluation table" * path.exists()
            raise UsageError(f"{path} {why or 'does not exist'}")
        items |= {item.resolve(): item for item in found}
    tables: dict[Path, re.Match[str]] = {}
    runs: list[Found] = []
    for item in items.values():
        if not item.is_dir():
            tables[item] = _name(item)
            continue
        try:
            runs.append((item, read_settings(item)))
        except (RunError, OSError) as error:
            skip(item, error)
    if items and not (runs or tables):
        raise RunError("none of these runs can be read")
    if env:
        envs = sorted({name["env"] for name in tables.values()} | {s["env"] for _, s in runs})
        if unknown := sorted(set(env) - set(envs)):
            raise UsageError(f"env must be one of {', '.join(envs)}; got {unknown[0]}")
        tables = {path: name for path, name in tables.items() if name["env"] in env}
        runs = [(path, settings) for path, settings in runs if settings["env"] in env]
    reject = skip if skip_invalid else _raise
    runs = _completed(runs, filter, trust, reject)
    if filter:
        runs = matching(runs, filter)
    curves: list[tuple[Path, Curve]] = []
    for path, name in tables.items():
        if filter or metric not in METRICS:
            why = f"no scalars such as {metric}" if metric not in METRICS else "no settings"
            skip(path, f"a table contains {why}")
            continue
        try:
            curves.append((path, curve_of_table(path, name, metric)))
        except RunError as error:
            reject(path, error)
    curves += curves_of_runs(runs, metric, times, skip, reject)
    groups: dict[tuple[str, str], list[Curve]] = {}
    for curve in longest_copies(curves, skip):
        groups.setdefault((curve.env, curve.label), []).append(curve)
    return [
        RunGroup(label, where, tuple(sorted(members, key=lambda curve: curve.seed)))
        for (where, label), members in groups.items()
    ]


def _raise(path: Path, error: Exception) -> None:
    raise error


def _found(path: Path) -> list[Path]:
    """Returns the run directories and tables at or below a path."""
    if path.is_file():
        return [path]
    tables = [file for file in sorted(path.glob("*.csv")) if _NAME.fullmatch(file.stem)]
    runs = run_directories(path)
    return runs if runs == [path] else tables + runs


def _trials_of_compared_studies(path: Path, runs: Iterable[Path]) -> list[Path]:
    """Returns the folders of trials below a path, of studies whose finalists have been trained.

    The scores of the trials are too optimistic, so they must not be mixed with those of the
    finalists, which can have the same settings.
    """
    folders = dict.fromkeys(run.parent.parent for run in runs)
    return [
        folder
        for folder in folders
        if folder.name == "trials"
        and path in folder.parents
        and (folder.parent / "final").is_dir()
        and (folder.parent / "study.json").is_file()
    ]


def _name(path: Path) -> re.Match[str]:
    """Splits the name of a table into label, environment and seed."""
    name = _NAME.fullmatch(path.stem)
    if not name:
        raise UsageError(
            f"a table must be named label-Environment-v0-seed.csv; got {path}: rename it, or pass "
            "the run directory"
        )
    return name


def _completed(
    runs: list[Found],
    filter: Iterable[str],
    trust: bool,
    reject: Callable[[Path, Exception], None],
) -> list[Found]:
    """Adds the defaults of settings that did not exist yet when a run was saved.

    Runs of custom agents are completed only if needed, because this imports the agent.
    """
    needed = {"seed", *filter}
    names: dict[str, set[frozenset[str]]] = {}
    for _, s in runs:
        used = frozenset(s.keys() - COMPARABLE | s.keys() & needed)
        names.setdefault(s["agent"], set()).add(used)
    found: list[Found] = []
    for path, settings in runs:
        agent = settings["agent"]
        missing = (needed & RunConfig.SETTINGS.keys()) - settings.keys()
        if ":" not in agent:  # a built-in agent
            defaults = {name: each.default for name, each in declared_settings(agent).items()}
            found.append((path, {**defaults, **settings}))
        elif missing or len(names[agent]) > 1:
            try:
                found.append((path, whole_settings(path, trust=trust)))
            except RunError as error:
                reject(path, error)
        else:
            found.append((path, settings))
    return found
