"""Caveats about figures and tables of scores."""

from __future__ import annotations

from collections.abc import Sequence

from eagerly.curves.groups import RunGroup

_ENOUGH = 5  # runs needed for nearly nominal coverage of the intervals
_PAGE = 'see "Plot and compare runs" in the documentation'


def notes_on(groups: Sequence[RunGroup], treated: str) -> list[str]:
    """Returns caveats about the scores of groups.

    Args:
        groups: The groups.
        treated: "scored" or "plotted and scored".
    """
    found = []
    if any(2 <= len(group.curves) < _ENOUGH for group in groups):
        found.append(f"intervals over fewer than {_ENOUGH} runs are too narrow ({_PAGE})")
    for group in groups:
        found += filter(None, (_missing_score(group), _unshared_steps(group, treated)))
    return found


def _missing_score(group: RunGroup) -> str:
    """Returns why a group has no score, or ""."""
    if group.scored_steps.size:
        return ""
    paths = ", ".join(str(curve.path) for curve in group.curves if not curve.counted.any())
    why = f"no evaluation of {paths} counts" if paths else "no evaluations count at common steps"
    return f"{group.label}, {group.env}: no score, because {why} ({_PAGE})"


def _unshared_steps(group: RunGroup, treated: str) -> str:
    """Returns a note on evaluations ignored because some runs of the group lack them, or ""."""
    shared = group.shared_steps
    about = f"{group.label}, {group.env}"
    if not shared.size:  # they have no score
        return ""
    shortest = min(int(curve.steps[-1]) for curve in group.curves)
    if any((curve.steps <= shortest).sum() > len(shared) for curve in group.curves):
        count = f"{len(shared)} steps" if len(shared) > 1 else "one step"
        return (
            f"{about}: the runs were evaluated at different steps; all are {treated} at "
            f"the {count} that they share, up to step {group.last:,}"
        )
    longer = sum(int(curve.steps[-1]) > shortest for curve in group.curves)
    if not longer:
        return ""
    return (
        f"{about}: {longer} of {len(group.curves)} runs are longer than the shortest; all are "
        f"{treated} up to step {group.last:,}"
    )
