"""The public function that writes a report of runs."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any

from eagerly.curves.selection import Selection, check_choice
from eagerly.errors import RunError, UsageError
from eagerly.storage.evaluations import LAST

_log = logging.getLogger(__name__)
_MOST_POINTS = 400  # of a line
_LARGEST = 1e100  # values whose statistics cannot overflow


def report(
    *paths: str | Path,
    output: str | Path | None = None,
    x: str = "steps",
    env: str | Sequence[str] = (),
    filter: Mapping[str, Any] | None = None,
    metric: str = "return",
    statistic: str = "iqm",
    until: int | None = None,
    baseline: str | None = None,
    rename: Mapping[str, str] | None = None,
    title: str = "Training report",
    trust: bool = False,
    score_last: int = LAST,
) -> str:
    """Creates a self-contained HTML page about runs.

    The page contains learning curves, scores, settings that differ, videos, overrides, and the
    versions of packages. It has no scripts and loads nothing from the network. Runs are grouped as
    by `eagerly.plot`. Skipped runs, such as damaged ones, are listed with the reason, and logged as
    warnings.

    Args:
        *paths: Run directories, tables, or folders that contain them; by default, the folder
            `runs`.
        output: The file to write, ending in `.html`; None writes no file.
        x: "steps" or "time", for wall time.
        env: As in `eagerly.plot`.
        filter: As in `eagerly.plot`.
        metric: As in `eagerly.plot`.
        statistic: As in `eagerly.plot`.
        until: As in `eagerly.plot`.
        baseline: Current or new label of the runs with which all other runs are compared.
        rename: As in `eagerly.plot`.
        title: Title of the page.
        trust: As in `eagerly.plot`.
        score_last: Number of final evaluations whose mean is the score of a run, at least 1.

    Returns:
        The page.

    Raises:
        RunError: If no run can be shown, an environment, setting, metric or label does not occur in
            the runs, or the file cannot be written.
        ValueError: If an argument is not one of its choices, or `until` or `score_last` is less
            than 1.
    """
    shown = env, filter, metric, statistic, until, rename, baseline, trust, score_last
    selection = Selection(paths, x, *shown)
    return write_report(selection, output, title)


def write_report(selection: Selection, output: str | Path | None, title: str) -> str:
    """Creates a page about the selected runs; see `report`."""
    with chdir("/"):  # matplotlib reads settings from the working directory on import
        from eagerly.reports.content import Report
        from eagerly.reports.page import page_of
    from eagerly.curves.lines import lines_of, write_file

    check_choice("output", Path(output or "x.html").suffix.lower(), (".html",))
    notes: list[str] = []
    skipped: list[tuple[str, str]] = []

    def skip(path: Path, reason: object) -> None:
        _log.warning("%s is skipped: %s", path, reason)
        skipped.append((str(path), str(reason).removeprefix(f"{path} ")))

    def note(line: str) -> None:
        _log.warning(line)
        notes.append(line)

    groups, lines = [], []
    for group in selection.groups(skip, skip_invalid=True):
        try:
            if max(abs(curve.returns).max() for curve in group.curves) > _LARGEST:
                raise ValueError(f"{group.label}, {group.env}: a value is beyond {_LARGEST:g}")
            lines += lines_of([group], selection.x, selection.statistic, _MOST_POINTS)
            groups.append(group)
        except ValueError as error:
            for curve in group.curves:
                skip(curve.path, error)
    if not groups:
        raise UsageError(f"none of these runs can be shown: {skipped[-1][1]}")
    comparisons = []
    try:
        comparisons = selection.comparisons(groups, note)
    except UsageError as error:
        if not skipped:
            raise
        note(f"not compared: {error}. If it has runs, all of them are skipped")
    except ValueError as error:
        note(f"not compared: {error}")
    for line in selection.notes(groups):
        note(line)
    page = page_of(Report(title, lines, groups, selection, comparisons, notes, skipped))
    if output is not None:
        try:
            write_file(Path(output), page.encode())
        except OSError as error:
            raise RunError(f"{output} cannot be written: {error}") from error
    return page
