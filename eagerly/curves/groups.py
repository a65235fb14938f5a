"""Learning curves of runs, in groups of runs with the same algorithm and settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from eagerly.errors import UsageError
from eagerly.storage.evaluations import LAST

# Called with the path of each skipped run or table, and the reason.
Skip = Callable[[Path, object], None]
_SAME = "is in the same group and has the same seed"  # but possibly another mode or device


@dataclass(frozen=True)
class Curve:
    """The evaluations of one run, or the points of one of its scalars.

    Attributes:
        label: Label shared by runs that differ only in their seed.
        env: Environment.
        seed: Seed of the run.
        steps: `[M]`, environment steps, increasing.
        returns: `[M]`, mean return of each evaluation, or another metric.
        seconds: `[M]`, wall time until each point, or NaN if it was not recorded.
        counted: `[M]` bool, whether the point counts for the score; see `Results`.
        path: The run directory or the table.
        settings: The agent and all settings of the run; empty for a table.
        history: The overrides of the run, as stored in `config.json`.
    """

    label: str
    env: str
    seed: int
    steps: np.ndarray
    returns: np.ndarray
    seconds: np.ndarray
    counted: np.ndarray
    path: Path = Path()
    settings: Mapping[str, Any] = field(default_factory=dict)
    history: Sequence[Mapping[str, Any]] = ()

    def until(self, steps: int) -> Curve:
        """Returns the curve up to and including a step."""
        kept = self.steps <= steps
        return replace(
            self,
            steps=self.steps[kept],
            returns=self.returns[kept],
            seconds=self.seconds[kept],
            counted=self.counted[kept],
        )


@dataclass(frozen=True)
class RunGroup:
    """Runs with the same label in one environment, ordered by seed.

    Attributes:
        label: Label of the runs.
        env: Environment.
        curves: One curve per run.
        score_last: Number of final evaluations whose mean is the score of a run.
    """

    label: str
    env: str
    curves: tuple[Curve, ...]
    score_last: int = LAST

    @property
    def last(self) -> int:
        """The last step at which all runs were evaluated; 0 if there is none."""
        return int(max(self.shared_steps, default=0))

    @property
    def shared_steps(self) -> np.ndarray:
        """The steps at which all runs were evaluated."""
        return reduce(np.intersect1d, (curve.steps for curve in self.curves))

    @property
    def scores(self) -> np.ndarray:
        """The final score of every run, `[n]`; see `scores_at`."""
        return self.scores_at(self.scored_steps)

    @property
    def scored_steps(self) -> np.ndarray:
        """The steps that all runs share and at which the evaluation of each run counts."""
        return reduce(np.intersect1d, (curve.steps[curve.counted] for curve in self.curves))

    def scores_at(self, steps: np.ndarray) -> np.ndarray:
        """Returns each run's score, `[n]`: its mean over the last evaluations, not its best one.

        Args:
            steps: Steps `[M]` at which all runs were evaluated. Only the last `score_last` are
                used. Without steps, scores are NaN.
        """
        if not steps.size:
            return np.full(len(self.curves), np.nan)
        rows = [
            curve.returns[np.isin(curve.steps, steps[-self.score_last :])] for curve in self.curves
        ]
        return np.stack(rows).mean(axis=1)

    def until(self, steps: int) -> RunGroup:
        """Returns the runs up to and including a step, without those that have no evaluations."""
        curves = (curve.until(steps) for curve in self.curves)
        return replace(self, curves=tuple(curve for curve in curves if curve.steps.size))

    def over_steps(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the steps `[M]` that all runs share, and the returns `[n, M]`.

        Raises:
            ValueError: If there is no such step.
        """
        steps = self.shared_steps
        if not steps.size:
            raise ValueError(
                f"the runs of {self.label} in {self.env} have no step in common: "
                f"{'; '.join(map(_schedule, self.curves))}. Plot them separately, or train runs "
                "with the same --num-envs and --evaluate-every-steps (or --summarize-every-steps "
                "for a metric of training)"
            )
        rows = [curve.returns[np.isin(curve.steps, steps)] for curve in self.curves]
        return steps, np.stack(rows)

    def over_seconds(self, points: int = 100) -> tuple[np.ndarray, np.ndarray]:
        """Returns times `[M]` covered by all runs, and the returns `[n, M]` at these times.

        M is `points`, or 1 if the runs share only one time. Returns are interpolated linearly.

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
        seconds = np.linspace(first, last, points if first < last else 1)
        return seconds, np.stack([np.interp(seconds, c.seconds, c.returns) for c in self.curves])


def _schedule(curve: Curve) -> str:
    """Returns the steps of a curve as text, abbreviated if there are many."""
    steps = [f"{int(step):,}" for step in curve.steps]
    shown = steps if len(steps) <= 4 else [*steps[:2], "...", steps[-1]]
    return f"seed {curve.seed} at {', '.join(shown)}"


def longest_copies(curves: Iterable[tuple[Path, Curve]], skip: Skip) -> list[Curve]:
    """Keeps the longest copy of each run, since copies are no additional evidence.

    Curves without points are skipped.

    Args:
        curves: Run directories or tables with their curves.
        skip: As in `read_groups`.

    Raises:
        UsageError: If a table holds the same run as another path.
    """
    kept: dict[tuple[str, str, int], tuple[Path, Curve]] = {}
    for path, curve in curves:
        if not curve.steps.size:
            skip(path, "it has no evaluations yet")
            continue
        key = curve.env, curve.label, curve.seed
        if key in kept:
            other = kept[key][0]
            what = f"{curve.label}, {curve.env}, seed {curve.seed}"
            if not (path.is_dir() and other.is_dir()):
                raise UsageError(
                    f"{other} and {path} are both {what}: omit one, or rename a table to give it "
                    "another label"
                )
            if curve.steps[-1] <= kept[key][1].steps[-1]:
                skip(path, f"{other} {_SAME}: {what}")
                continue
            skip(other, f"{path} {_SAME}: {what}")
        kept[key] = path, curve
    return [curve for _, curve in kept.values()]
