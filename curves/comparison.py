"""Kinds of runs beside a baseline: in every environment, and in all of them together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eagerly.curves.references import RANDOM_RETURNS
from eagerly.curves.statistics import (
    Estimate,
    difference,
    interquartile_mean,
    probability_of_improvement,
    relative,
)
from eagerly.curves.tables import Group


@dataclass(frozen=True)
class Comparison:
    """How runs of one kind do beside those of the baseline.

    Attributes:
        label: The kind.
        envs: Environments in which both have runs.
        steps: For each of them the step at which they are compared, the last that both have.
        difference: Of the interquartile means of scores; None over several environments.
        normalized: Interquartile mean of scores, where a random policy has 0 and that of the
            baseline is 1; None where what a random policy reaches is not known, or is not less.
        improvement: Probability that a run scores higher than one of the baseline.
    """

    label: str
    envs: tuple[str, ...]
    steps: tuple[int, ...]
    difference: Estimate | None
    normalized: Estimate | None
    improvement: Estimate

    @property
    def where(self) -> str:
        """The environment, or how many."""
        return self.envs[0] if len(self.envs) == 1 else f"all {len(self.envs)}"


def compare(groups: Sequence[Group], baseline: str) -> list[Comparison]:
    """Compares every kind of runs with the baseline.

    Args:
        groups: All runs, those of the baseline among them.
        baseline: Their label.

    Returns:
        For each kind a comparison per environment, and one over all if there are several.
    """
    of = {group.env: group for group in groups if group.label == baseline}
    found = []
    for label in dict.fromkeys(group.label for group in groups if group.label != baseline):
        shared = [group for group in groups if group.label == label and group.env in of]
        pairs = [(group, of[group.env]) for group in shared]
        found += [_comparison(label, [pair]) for pair in pairs]
        if len(pairs) > 1:
            found.append(_comparison(label, pairs))
    return found


def _comparison(label: str, pairs: Sequence[tuple[Group, Group]]) -> Comparison:
    envs = tuple(group.env for group, _ in pairs)
    # Both sides at the last step that both have.
    ends = [min(group.last, other.last) for group, other in pairs]
    scores = [group.until(end).scores for (group, _), end in zip(pairs, ends, strict=True)]
    others = [other.until(end).scores for (_, other), end in zip(pairs, ends, strict=True)]
    zeros = [RANDOM_RETURNS.get(env, np.inf) for env in envs]
    better = all(interquartile_mean(o) > zero for o, zero in zip(others, zeros, strict=True))
    return Comparison(
        label,
        envs,
        tuple(ends),
        difference(scores[0], others[0]) if len(pairs) == 1 else None,
        relative(scores, others, zeros) if better else None,
        probability_of_improvement(scores, others),
    )
