"""Compares groups of runs with a baseline, per environment and over all environments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from eagerly.curves.estimates import (
    Estimate,
    difference,
    probability_of_improvement,
    relative,
)
from eagerly.curves.groups import RunGroup

# Mean returns of a random policy over seeds 0 to 199, which define the zero of normalized scores.
# Partially observable variants have the same values, because a random policy ignores observations.
RANDOM_RETURNS: Mapping[str, float] = MappingProxyType(
    {
        "HalfCheetah-v5": -278.17,
        "Hopper-v5": 17.50,
        "Walker2d-v5": 1.69,
        "Ant-v5": -55.38,
        "Humanoid-v5": 112.68,
        "Swimmer-v5": 2.61,
        "Reacher-v5": -42.94,
        "InvertedPendulum-v5": 5.50,
        "InvertedDoublePendulum-v5": 48.58,
        "Pendulum-v1": -1239.56,
        "HopperPositions-v5": 17.50,
        "PendulumPositions-v1": -1239.56,
        "PendulumFlickering-v1": -1239.56,
        "PendulumPixels-v1": -1239.56,
        "CartPole-v1": 24.09,
        "CartPolePositions-v1": 24.09,
        "Taxi-v4": -773.49,
        "LunarLanderContinuous-v3": -212.40,
    }
)


@dataclass(frozen=True)
class Comparison:
    """A comparison between the runs with one label and those of the baseline.

    Attributes:
        label: Label of the compared runs.
        envs: Environments in which both labels have runs.
        steps: For each environment, the last step at which evaluations of all runs of both labels
            count.
        difference: Interquartile mean of this label's scores minus that of the baseline's scores;
            None if there are several environments.
        normalized: Interquartile mean of the scores, scaled so that a random policy has 0 and the
            baseline has 1. If there are several environments, the mean over them. None if the
            score of a random policy is unknown, or a baseline run does not exceed it.
        improvement: Probability that a run of this label scores higher than a baseline run.
    """

    label: str
    envs: tuple[str, ...]
    steps: tuple[int, ...]
    difference: Estimate | None
    normalized: Estimate | None
    improvement: Estimate

    @property
    def where(self) -> str:
        """The environment, or "all N" for N environments."""
        return self.envs[0] if len(self.envs) == 1 else f"all {len(self.envs)}"


def compare(
    groups: Sequence[RunGroup], baseline: str, zeros: Mapping[str, float] | None = None
) -> list[Comparison]:
    """Compares the runs of each label with those of the baseline.

    Args:
        groups: All runs, including those of the baseline.
        baseline: Label of the baseline.
        zeros: Known scores of a random policy, by environment; None uses `RANDOM_RETURNS`.

    Returns:
        For each other label, one comparison per environment, and one over all environments if there
        are several.

    Raises:
        ValueError: If no other label has runs in an environment of the baseline, or two groups have
            no step in common.
    """
    zeros = RANDOM_RETURNS if zeros is None else zeros
    of = {group.env: group for group in groups if group.label == baseline}
    found = []
    for label in dict.fromkeys(group.label for group in groups if group.label != baseline):
        shared = [group for group in groups if group.label == label and group.env in of]
        pairs = [(group, of[group.env]) for group in shared]
        found += [_comparison(label, [pair], zeros) for pair in pairs]
        if len(pairs) > 1:
            found.append(_comparison(label, pairs, zeros))
    if not found:
        raise ValueError(
            f"no runs to compare with {baseline}: no other label has runs in {sorted(of)}"
        )
    return found


def _common_steps(group: RunGroup, other: RunGroup) -> np.ndarray:
    """Returns the steps at which an evaluation of each run of both groups counts."""
    steps = np.intersect1d(group.scored_steps, other.scored_steps)
    if not steps.size:
        raise ValueError(
            f"{group.label} and {other.label} have no step in common in {group.env} at which "
            'evaluations count (see "Plot and compare runs" in the documentation)'
        )
    return steps


def _comparison(
    label: str, pairs: Sequence[tuple[RunGroup, RunGroup]], random: Mapping[str, float]
) -> Comparison:
    envs = tuple(group.env for group, _ in pairs)
    steps = [_common_steps(group, other) for group, other in pairs]
    scores = [group.scores_at(at) for (group, _), at in zip(pairs, steps, strict=True)]
    others = [other.scores_at(at) for (_, other), at in zip(pairs, steps, strict=True)]
    zeros = [random.get(env, np.inf) for env in envs]
    # Every baseline run must be better, because a bootstrap sample may contain only the worst one.
    better = all(other.min() > zero for other, zero in zip(others, zeros, strict=True))
    return Comparison(
        label,
        envs,
        tuple(int(at[-1]) for at in steps),
        difference(scores[0], others[0]) if len(pairs) == 1 else None,
        relative(scores, others, zeros) if better else None,
        probability_of_improvement(scores, others),
    )
