"""Reads the curve of one run directory or table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from eagerly.curves.groups import Curve, Skip
from eagerly.curves.labels import OVERRIDES, Found, algorithm_overrides, labels
from eagerly.errors import RunError, UsageError
from eagerly.storage.config import NO_EVALUATIONS
from eagerly.storage.evaluations import read_results
from eagerly.storage.event_log import read_scalar, seconds_at_evaluations
from eagerly.storage.run_document import last_override, read_document_of, results_of

METRICS = {"return": "return_mean", "success": "success_rate"}  # fields of `Results`
_MOST_TAGS = 100  # in messages


def curve_of_table(path: Path, name: re.Match[str], metric: str) -> Curve:
    """Reads a table.

    Args:
        path: The table.
        name: Its label, environment and seed.
        metric: As in `read_groups`.

    Raises:
        RunError: If the table is damaged, or lacks the metric.
    """
    path = path.resolve()  # tables may be links, because they are only read
    results = read_results(path, of_run=False)
    values, (label, env, seed) = getattr(results, METRICS[metric]), name.groups()
    at, counted = results.seconds, results.counted
    curve = Curve(label, env, int(seed), results.steps, values, at, counted, path)
    _check_values(curve, metric, path)
    return curve


def curves_of_runs(
    runs: Iterable[Found],
    metric: str,
    times: bool,
    skip: Skip,
    reject: Callable[[Path, Exception], None],
) -> list[tuple[Path, Curve]]:
    """Reads the curves of run directories and labels them.

    Args:
        runs: Run directories with their settings.
        metric: As in `read_groups`.
        times: As in `read_groups`.
        skip: As in `read_groups`.
        reject: Called with a run directory without values of the metric, and the error.

    Raises:
        RunError: If no run has the metric.
    """
    found: list[tuple[Found, Curve]] = []
    lacking: dict[Path, set[str]] = {}  # tags of runs without the metric
    for path, settings in runs:
        try:
            history = read_document_of(path)["history"]
            curve, tags = _of_run(path, settings, history, metric, times)
        except (RunError, OSError) as error:
            skip(path, error)
            continue
        try:
            _check_values(curve, metric, path)
        except RunError as error:
            reject(path, error)
            continue
        if curve.steps.size:
            settings = {**settings, OVERRIDES: algorithm_overrides(history)}
            curve = replace(curve, path=path, settings=settings, history=history)
            found.append(((path, settings), curve))
        elif metric in METRICS:
            never = settings.get("evaluations") == NO_EVALUATIONS
            skip(path, "it is never evaluated" if never else "it has no evaluations yet")
        else:
            lacking[path] = tags
    every = sorted(set().union(*lacking.values()))
    if every and not found and metric not in every:
        shown = ", ".join(every[:_MOST_TAGS]) + (", ..." if len(every) > _MOST_TAGS else "")
        raise UsageError(
            f"metric must be return, success, or a scalar of the runs: {shown}; got {metric}"
        )
    for path in lacking:
        skip(path, f"it has no points of {metric}")
    texts = labels([run for run, _ in found])
    return [
        (path, replace(curve, label=text))
        for ((path, _), curve), text in zip(found, texts, strict=True)
    ]


def _of_run(
    path: Path,
    settings: Mapping[str, Any],
    history: Sequence[Mapping[str, Any]],
    metric: str,
    times: bool,
) -> tuple[Curve, set[str]]:
    """Returns the curve of a run directory, without a label, and the tags if it is a scalar."""
    tags: set[str] = set()
    if metric in METRICS:
        results = results_of(path, history)
        steps, values, counted = results.steps, getattr(results, METRICS[metric]), results.counted
        seconds = seconds_at_evaluations(path) if times else {}
        if lost := [step for step in steps.tolist() if times and step not in seconds]:
            raise RunError(f"its event files contain no time of the evaluation at step {lost[0]}")
    else:
        points, tags = read_scalar(path, metric)
        steps = np.array(sorted(points))
        values = np.array([points[step][0] for step in sorted(points)])
        counted = steps > last_override(history)
        seconds = {step: at for step, (_, at) in points.items()}
    at = np.array([seconds.get(int(step), np.nan) for step in steps])
    env, seed = settings["env"], int(settings["seed"])
    return Curve("", env, seed, steps, values, at, counted), tags


def _check_values(curve: Curve, metric: str, path: Path) -> None:
    """Raises a `RunError` if evaluations lack the metric."""
    if (lacking := np.isnan(curve.returns)).any():
        raise UsageError(
            f"{path} has no {METRICS[metric]} at step {curve.steps[lacking][0]}: its "
            "environment did not report success in `info`. Pass only runs of environments that do"
        )
