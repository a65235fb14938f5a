"""Selects the runs of a figure or a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eagerly.curves.comparison import Comparison, compare
from eagerly.curves.estimates import STATISTICS
from eagerly.curves.groups import RunGroup, Skip
from eagerly.curves.notes import notes_on
from eagerly.curves.reading import METRICS
from eagerly.curves.tables import read_groups
from eagerly.errors import UsageError
from eagerly.storage.evaluations import LAST
from eagerly.storage.files import RUNS


@dataclass(frozen=True)
class Selection:
    """Selects runs, and how a figure or a report shows them.

    Attributes:
        paths: Run directories, tables, or folders that contain them; empty for the folder `runs`.
        x: "steps", or "time" for wall time.
        env: Environments to show; empty for all.
        filter: Values of settings, as in `read_groups`.
        metric: "return", "success" or the tag of a scalar.
        statistic: "iqm" or "mean", over runs.
        until: Environment steps after which evaluations are omitted, at least 1; None keeps all.
        rename: Maps current labels to new ones.
        baseline: Current or new label of the runs with which all others are compared, or None.
        trust: Whether to import custom agents of directories that another user created.
        score_last: Number of final evaluations whose mean is the score of a run, at least 1.

    Raises:
        ValueError: If `x`, `statistic`, `until` or `score_last` is invalid.
    """

    paths: Sequence[str | Path] = ()
    x: str = "steps"
    env: str | Collection[str] = ()
    filter: Mapping[str, Any] | None = None
    metric: str = "return"
    statistic: str = "iqm"
    until: int | None = None
    rename: Mapping[str, str] | None = None
    baseline: str | None = None
    trust: bool = False
    score_last: int = LAST

    def __post_init__(self) -> None:
        check_choice("x", self.x, ("steps", "time"))
        check_choice("statistic", self.statistic, STATISTICS)
        if self.until is not None and self.until < 1:
            raise ValueError(f"until must be at least 1; got {self.until}")
        if self.score_last < 1:
            raise ValueError(f"score_last must be at least 1; got {self.score_last}")

    def groups(self, skip: Skip, *, skip_invalid: bool = False) -> list[RunGroup]:
        """Reads the selected groups, with their new labels.

        Args:
            skip: As in `read_groups`.
            skip_invalid: As in `read_groups`.

        Raises:
            RunError: As in `read_groups`; also if no point is left, a label to rename does not
                exist, or renaming would give two labels of an environment the same name.
        """
        until, rename = self.until, self.rename or {}
        groups = read_groups(
            [Path(path) for path in self.paths] or [RUNS],
            metric=self.metric,
            times=self.x == "time",
            env=(self.env,) if isinstance(self.env, str) else self.env,
            filter=self.filter or {},
            skip=skip,
            trust=self.trust,
            skip_invalid=skip_invalid,
        )
        if until:
            for curve in (c for group in groups for c in group.curves if c.steps[0] > until):
                skip(curve.path, f"it has no evaluations up to step {until}")
            groups = [group.until(until) for group in groups]
        groups = [group for group in groups if group.curves]
        if not groups:
            what = "evaluations" if self.metric in METRICS else f"points of {self.metric}"
            when = f"up to step {until}" if until else "yet"
            raise UsageError(f"these runs have no {what} {when}")
        labels = sorted({group.label for group in groups})
        if unknown := sorted(rename.keys() - set(labels)):
            raise UsageError(f"the label to rename must be one of {labels}; got {unknown[0]!r}")
        groups = [
            replace(group, label=rename.get(group.label, group.label), score_last=self.score_last)
            for group in groups
        ]
        names = Counter((group.env, group.label) for group in groups)
        for (env, name), count in names.items():
            if count > 1:
                raise UsageError(
                    f"different labels must have different names in {env}; got {name!r} {count} "
                    "times"
                )
        return groups

    @property
    def reference(self) -> str:
        """The new label of the baseline; "" without a baseline."""
        return (self.rename or {}).get(self.baseline or "", self.baseline or "")

    def comparisons(
        self, groups: Sequence[RunGroup], say: Callable[[str], None]
    ) -> list[Comparison]:
        """Compares groups with the baseline.

        Args:
            groups: The groups, from `groups`.
            say: Called with a message if the baseline has no runs in some environment.

        Raises:
            RunError: If no group has the label of the baseline.
            ValueError: As in `compare`.
        """
        if not self.baseline:
            return []
        labels = sorted({group.label for group in groups})
        if self.reference not in labels:
            raise UsageError(f"baseline must be one of {', '.join(labels)}; got {self.baseline!r}")
        # The success rates of random policies are unknown, so success rates are not normalized.
        zeros: dict[str, float] | None = None if self.metric == "return" else {}
        found = compare(groups, self.reference, zeros)
        envs = {group.env for group in groups if group.label == self.reference}
        if lacking := sorted({group.env for group in groups} - envs):
            say(f"not compared in {', '.join(lacking)}: {self.reference} has no runs there")
        return found

    def notes(self, groups: Sequence[RunGroup]) -> list[str]:
        """Returns caveats about a figure and the scores of groups."""
        return notes_on(groups, "plotted and scored" if self.x == "steps" else "scored")


def check_choice(name: str, value: str, choices: Collection[str]) -> None:
    """Raises a `ValueError` if an argument is not one of its choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}; got {value!r}")
