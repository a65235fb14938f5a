"""Reads the evaluations in run directories or tables and groups the runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from eagerly.errors import RunError
from eagerly.storage.evaluations import LAST, Results, read_results
from eagerly.storage.event_log import seconds_at_evaluations
from eagerly.storage.files import run_directories
from eagerly.storage.run import read_settings, whole_settings

# Tables are named `label-Environment-v5-seed.csv`.
_NAME = re.compile(r"(?P<label>.+)-(?P<env>[^-]+-v\d+)-(?P<seed>\d+)")
# Settings that are never part of a label. Apart from seed and env, they do not affect training.
_OF_A_RUN = {
    "seed",
    "env",
    "evaluation_seed",
    "evaluation_episodes",
    "evaluate_every_steps",
    "summarize_every_steps",
}


@dataclass(frozen=True)
class Curve:
    """The evaluations of one run.

    Attributes:
        label: Label shared by runs that differ only in their seed.
        env: Environment.
        seed: Seed of the run.
        steps: `[M]`, environment steps, increasing.
        returns: `[M]`, mean return of each evaluation, or another metric.
        seconds: `[M]`, wall time until each evaluation, or NaN if it was not recorded.
    """

    label: str
    env: str
    seed: int
    steps: np.ndarray
    returns: np.ndarray
    seconds: np.ndarray

    def until(self, steps: int) -> Curve:
        """Returns the curve up to and including a step."""
        kept = self.steps <= steps
        return replace(
            self, steps=self.steps[kept], returns=self.returns[kept], seconds=self.seconds[kept]
        )


@dataclass(frozen=True)
class RunGroup:
    """Runs with the same label in one environment, ordered by seed.

    Attributes:
        label: Label of the runs.
        env: Environment.
        curves: One curve per run.
    """

    label: str
    env: str
    curves: tuple[Curve, ...]

    @property
    def last(self) -> int:
        """The last step at which all runs were evaluated."""
        return int(self.over_steps()[0][-1])

    @property
    def scores(self) -> np.ndarray:
        """The final score of every run, `[n]`; see `scores_at`."""
        return self.scores_at(self.over_steps()[0])

    @property
    def means(self) -> np.ndarray:
        """Each run's mean over the evaluations that all runs share, `[n]`.

        It depends on both the final level and the speed of learning.
        """
        return self.over_steps()[1].mean(axis=1)

    def scores_at(self, steps: np.ndarray) -> np.ndarray:
        """Returns each run's score, `[n]`: its mean over the last 3 evaluations, not its best one.

        Args:
            steps: Steps `[M]` at which all runs were evaluated. Only the last 3 are used.
        """
        rows = [curve.returns[np.isin(curve.steps, steps[-LAST:])] for curve in self.curves]
        return np.stack(rows).mean(axis=1)

    def until(self, steps: int, *, complete: bool = False) -> RunGroup:
        """Returns the runs up to and including a step.

        Args:
            steps: The last step to keep.
            complete: Whether to omit runs without an evaluation at exactly this step.
        """
        curves = (curve.until(steps) for curve in self.curves)
        kept = (c for c in curves if c.steps.size and (not complete or c.steps[-1] == steps))
        return RunGroup(self.label, self.env, tuple(kept))

    def over_steps(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the steps `[M]` at which all runs were evaluated, and the returns `[n, M]`.

        Raises:
            ValueError: If there is no such step.
        """
        steps = reduce(np.intersect1d, (curve.steps for curve in self.curves))
        if not steps.size:
            raise ValueError(
                f"the runs of {self.label} in {self.env} have no evaluation step in common: "
                f"{'; '.join(map(_schedule, self.curves))}. Plot them separately, or train runs "
                "with the same --evaluate-every-steps and --num-envs"
            )
        rows = [curve.returns[np.isin(curve.steps, steps)] for curve in self.curves]
        return steps, np.stack(rows)

    def over_seconds(self, points: int = 100) -> tuple[np.ndarray, np.ndarray]:
        """Returns times `[M]` covered by all runs, and the returns `[n, M]` at these times.

        The returns are interpolated linearly.

        Raises:
            ValueError: If a run has no recorded times, or was first evaluated after another run had
                ended.
        """
        for curve in self.curves:
            if np.isnan(curve.seconds).any():
                raise ValueError(f"{self.label}, {self.env}, seed {curve.seed}: no times recorded")
        first = max(curve.seconds[0] for curve in self.curves)
        last = min(curve.seconds[-1] for curve in self.curves)
        if first > last:
            raise ValueError(
                f"{self.label}, {self.env}: the runs do not overlap in time: one was first "
                f"evaluated after {first:.0f} s, another ended after {last:.0f} s"
            )
        seconds = np.linspace(first, last, points)
        return seconds, np.stack([np.interp(seconds, c.seconds, c.returns) for c in self.curves])


def _schedule(curve: Curve) -> str:
    """Returns the evaluation steps of a run as text, abbreviated if there are many."""
    steps = [f"{int(step):,}" for step in curve.steps]
    shown = steps if len(steps) <= 4 else [*steps[:2], "...", steps[-1]]
    return f"seed {curve.seed} at {', '.join(shown)}"


def read_groups(
    paths: Iterable[Path],
    *,
    metric: str = "return_mean",
    times: bool = False,
    say: Callable[[str], None] = lambda line: None,
    trust: bool = False,
) -> list[RunGroup]:
    """Reads and groups the runs in run directories, tables, or folders that contain them.

    If runs of the same environment and agent have different settings, their labels show these
    settings. Runs without evaluations are omitted.

    Args:
        paths: Run directories, tables and folders. Duplicate paths are read once.
        metric: The field of `Results` to read: "return_mean" or "success_rate".
        times: Whether to read the time of each evaluation from the event files of run directories.
        say: Called with a message about each run that is omitted, because it is damaged, or
            because another directory holds a copy that is at least as long.
        trust: Whether to import custom agents named in run directories, even if another user
            created these directories. Agents are imported only if runs have different sets of
            settings, to look up the defaults of missing settings.

    Raises:
        RunError: If a path holds neither a run nor a table, a table is damaged, a table and
            another path hold the same run, or an untrusted agent must be imported.
    """
    curves: list[tuple[Path, Curve]] = []
    runs: list[tuple[Path, dict[str, Any], Results]] = []
    items: dict[Path, Path] = {}
    for path in paths:
        found = _found(path)
        if not found:
            raise RunError(f"{path} contains neither a run nor an evaluation table")
        items |= {item.resolve(): item for item in found}
    for item in items.values():
        if item.is_dir():
            try:
                results = read_results(item / "evaluations.csv")
                runs.append((item, read_settings(item), results))
            except (RunError, OSError) as error:
                say(f"{item} is skipped: {error}")
        else:
            curves.append((item, _of_table(item, metric)))
    labels = _labels([(path, settings) for path, settings, _ in runs], trust)
    for (run, settings, results), label in zip(runs, labels, strict=True):
        curves.append((run, _of_run(run, settings, results, label, metric, times)))
    groups: dict[tuple[str, str], list[Curve]] = {}
    for curve in _each_seed_once(curves, say):
        groups.setdefault((curve.env, curve.label), []).append(curve)
    return [
        RunGroup(label, env, tuple(sorted(members, key=lambda curve: curve.seed)))
        for (env, label), members in groups.items()
    ]


METRICS = {"return": "return_mean", "success": "success_rate"}


def selected_groups(
    paths: Iterable[str | Path],
    *,
    metric: str = "return",
    axis: str = "steps",
    until: int | None = None,
    rename: Mapping[str, str] = MappingProxyType({}),
    say: Callable[[str], None] = lambda line: None,
    trust: bool = False,
) -> list[RunGroup]:
    """Reads the groups for a figure, then filters and renames them.

    Args:
        paths: As in `read_groups`.
        metric: "return" or "success".
        axis: "steps", or "time" for wall time.
        until: Environment steps after which evaluations are omitted; None keeps all.
        rename: Maps current labels to new ones.
        say: As in `read_groups`.
        trust: As in `read_groups`.

    Raises:
        RunError: As in `read_groups`; also if no evaluation is left, a label to rename does not
            exist, or renaming would give two labels the same name.
    """
    files = [Path(path) for path in paths]
    groups = read_groups(files, metric=METRICS[metric], times=axis == "time", say=say, trust=trust)
    groups = [group.until(until) if until else group for group in groups]
    groups = [group for group in groups if group.curves]
    if not groups:
        raise RunError("these runs have no evaluations yet")
    labels = sorted({group.label for group in groups})
    if unknown := sorted(rename.keys() - set(labels)):
        raise RunError(f"the label to rename must be one of {labels}; got {unknown[0]!r}")
    renamed = [rename.get(label, label) for label in labels]
    if len(set(renamed)) < len(labels):
        raise RunError(f"different labels must have different names; got {renamed}")
    return [replace(group, label=rename.get(group.label, group.label)) for group in groups]


def _each_seed_once(
    curves: Iterable[tuple[Path, Curve]], say: Callable[[str], None]
) -> list[Curve]:
    """Keeps only the longest copy of each run, since copies are no additional evidence."""
    kept: dict[tuple[str, str, int], tuple[Path, Curve]] = {}
    for path, curve in curves:
        if not curve.steps.size:
            continue
        key = curve.env, curve.label, curve.seed
        if key in kept:
            other = kept[key][0]
            what = f"{curve.label}, {curve.env}, seed {curve.seed}"
            if not (path.is_dir() and other.is_dir()):
                raise RunError(
                    f"{other} and {path} are both {what}: omit one, or rename a table to give it "
                    "another label"
                )
            if curve.steps[-1] <= kept[key][1].steps[-1]:
                say(f"{path} is skipped: {other} is the same run, {what}")
                continue
            say(f"{other} is skipped: {path} is the same run, {what}")
        kept[key] = path, curve
    return [curve for _, curve in kept.values()]


def _found(path: Path) -> list[Path]:
    """Returns the run directories and tables at or below a path."""
    if path.is_file():
        return [path]
    tables = [file for file in sorted(path.glob("*.csv")) if _NAME.fullmatch(file.stem)]
    runs = run_directories(path)
    return runs if runs == [path] else tables + runs


def _of_table(path: Path, metric: str) -> Curve:
    name = _NAME.fullmatch(path.stem)
    if not name:
        raise RunError(
            f"a table must be named label-Environment-v0-seed.csv; got {path}: rename it, or pass "
            "the run directory"
        )
    path = path.resolve()  # tables may be links, because they are only read
    results = read_results(path, of_run=False)
    return Curve(
        name["label"],
        name["env"],
        int(name["seed"]),
        results.steps,
        _values(results, metric, path),
        results.seconds,
    )


def _of_run(
    path: Path,
    settings: dict[str, Any],
    results: Results,
    label: str,
    metric: str,
    times: bool,
) -> Curve:
    seconds = seconds_at_evaluations(path) if times else {}
    return Curve(
        label,
        settings["env"],
        int(settings["seed"]),
        results.steps,
        _values(results, metric, path),
        np.array([seconds.get(int(step), np.nan) for step in results.steps]),
    )


def _values(results: Results, metric: str, path: Path) -> np.ndarray:
    values: np.ndarray = getattr(results, metric)
    if np.isnan(values).any():
        raise RunError(
            f"{path} has no {metric} at step {results.steps[np.isnan(values)][0]}: its environment "
            "did not report success in `info`. Pass only runs of environments that do"
        )
    return values


def _labels(found: Sequence[tuple[Path, dict[str, Any]]], trust: bool) -> list[str]:
    """Returns a label per run: the agent, and the settings that vary within an environment.

    Settings that vary only between environments, as environment presets do, are not in labels.
    """
    runs = [settings for _, settings in found]
    agents = {settings["agent"] for settings in runs}
    if any(len({frozenset(s) for s in runs if s["agent"] == agent}) > 1 for agent in agents):
        # Some runs were saved before a setting existed, and use its default.
        runs = [whole_settings(path, trust=trust) for path, _ in found]
    varied: dict[str, list[str]] = {}
    for agent in agents:
        alike = [settings for settings in runs if settings["agent"] == agent]
        names = [name for name in alike[0] if name not in _OF_A_RUN]
        varied[agent] = [name for name in names if _differs(name, alike)]
    return [
        ", ".join([s["agent"], *(_described(name, s[name]) for name in varied[s["agent"]])])
        for s in runs
    ]


def _described(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return name if value else f"no {name}"
    return f"{name} {value}"


def _differs(name: str, runs: Sequence[dict[str, Any]]) -> bool:
    """Returns whether a setting has several values within one environment."""
    pairs = {(settings["env"], repr(settings[name])) for settings in runs}
    return len(pairs) > len({env for env, _ in pairs})
