"""Steps of all environments, joined from the rollouts of groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eagerly.collectors.episodes import EpisodeLog, FinishedEpisode
from eagerly.environments.group import Rollout


@dataclass(frozen=True)
class VectorStep:
    """What a step of N environments gave.

    Attributes:
        acted_upon: `[N, O]`, the observations before it.
        observations: `[N, O]`; where an episode ended the real last one.
        rewards: `[N]`.
        terminated, truncated: `[N]` bool.
        ended: Which episodes did one or the other, `[N]` bool.
        infos: The numbers in `info` of each episode that ended.
        episodes: The episodes that ended, in the order of `infos`.
        kept: Of each environment what `info_keys` names and `info` has, `[N]`; None without any.
    """

    acted_upon: np.ndarray
    observations: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    ended: np.ndarray
    infos: list[dict[str, float]]
    episodes: list[FinishedEpisode]
    kept: list[dict[str, Any]] | None = None


def joined_steps(
    rollouts: Sequence[Rollout], episodes: EpisodeLog, steps_left: int = 0
) -> Iterator[tuple[np.ndarray, VectorStep]]:
    """Joins the rollouts of groups, and counts step by step what episodes have done.

    Args:
        rollouts: Of each group, in the order of their environments.
        episodes: Where it is counted.
        steps_left: How many more steps follow in the same round.

    Yields:
        For each step the actions as the agent makes them, and what came of it.
    """
    observations, actions, executed, rewards, terminated, truncated = (
        _joined([getattr(each, name) for each in rollouts])
        for name in ("observations", "actions", "executed", "rewards", "terminated", "truncated")
    )
    ends = [each.ended() for each in rollouts]
    following = _joined(
        [each.next_observations(end) for each, end in zip(rollouts, ends, strict=True)]
    )
    ended, infos = _joined(ends), _by_step(rollouts, ends)
    kept = [each.kept for each in rollouts if each.kept is not None]
    for step, acted in enumerate(actions):
        left = steps_left + len(actions) - 1 - step
        yield (
            acted,
            VectorStep(
                observations[step],
                following[step],
                rewards[step],
                terminated[step],
                truncated[step],
                ended[step],
                infos[step],
                episodes.count(executed[step], rewards[step], ended[step], left),
                [each for group in kept for each in group[step]] if kept else None,
            ),
        )


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Joins what there is of groups, `[T, G, ...]` each, in the order of the environments."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def _by_step(
    rollouts: Sequence[Rollout], ended: Sequence[np.ndarray]
) -> list[list[dict[str, float]]]:
    """Sorts the infos of episodes that ended by their step, then by their environment."""
    found: list[list[dict[str, float]]] = [[] for _ in ended[0]]
    for rollout, ends in zip(rollouts, ended, strict=True):
        if rollout.infos:
            for step, info in zip(np.nonzero(ends)[0].tolist(), rollout.infos, strict=True):
                found[step].append(info)
    return found
