"""Turns recorded steps into transitions: next observations and the ends of episodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Steps:
    """n consecutive steps. Lists contain one array `[n, ...]` per leaf of the space.

    Attributes:
        observations, actions, next_observations: Leaves. `next_observations` is empty if the file
            does not contain them.
        rewards: `[n]`, float64.
        terminated, truncated: `[n]`, bool.
    """

    observations: list[np.ndarray]
    actions: list[np.ndarray]
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    next_observations: list[np.ndarray]

    def __len__(self) -> int:
        return len(self.rewards)

    def __getitem__(self, index: Any) -> Steps:
        return Steps(
            [part[index] for part in self.observations],
            [part[index] for part in self.actions],
            self.rewards[index],
            self.terminated[index],
            self.truncated[index],
            [part[index] for part in self.next_observations],
        )


def joined(parts: list[Steps]) -> Steps:
    """Concatenates steps."""
    if len(parts) == 1:
        return parts[0]

    def leaves(name: str) -> list[np.ndarray]:
        columns = zip(*(getattr(part, name) for part in parts), strict=True)
        return [np.concatenate(column) for column in columns]

    return Steps(
        leaves("observations"),
        leaves("actions"),
        np.concatenate([part.rewards for part in parts]),
        np.concatenate([part.terminated for part in parts]),
        np.concatenate([part.truncated for part in parts]),
        leaves("next_observations"),
    )


class EpisodeReturns:
    """Sums rewards over episodes.

    Attributes:
        steps: Number of steps.
        episodes: Number of episodes, including those that a time limit or the end of the file cut.
        total: Sum of all rewards, which is the sum of all episode returns.
    """

    def __init__(self) -> None:
        self.steps = self.episodes = 0
        self.total = 0.0
        self._open = False

    def add(self, rewards: np.ndarray, ended: np.ndarray) -> None:
        """Adds consecutive steps.

        Args:
            rewards: `[n]`.
            ended: `[n]`, True for the last step of each episode.
        """
        self.steps += len(rewards)
        self.episodes += int(ended.sum())
        self.total += float(rewards.sum())
        self._open = not ended[-1]

    def finish(self) -> None:
        """Counts an episode that the end of the file cut."""
        self.episodes += self._open
        self._open = False


def transitions_of_flat(blocks: Iterable[Steps], returns: EpisodeReturns) -> Iterator[Steps]:
    """Maps consecutive steps to transitions with their next observations.

    Without stored next observations, the next one is the observation of the following step. The
    last step of an episode that did not terminate has no following step and is omitted; the step
    before it becomes the last one. The observation after a termination is unknown, and replaced by
    the observation itself.

    Args:
        blocks: The steps of the file, in order.
        returns: Receives the rewards of all steps, including omitted ones.

    Yields:
        Transitions. In each episode's last one, `terminated` or `truncated` is True.
    """
    pending: Steps | None = None
    for block in blocks:
        if not len(block):
            continue
        returns.add(block.rewards, block.terminated | block.truncated)
        pending = block if pending is None else joined([pending, block])
        # The following step determines whether a step is the last one of its episode; and the last
        # step of the file is cut.
        if len(pending) > 2:
            yield _settled(pending, len(pending) - 2, at_end=False)
            pending = pending[-2:]
    if pending is not None:
        last = _settled(pending, len(pending), at_end=True)
        yield from (last[index : index + 1] for index in range(len(last)))
    returns.finish()


def _settled(steps: Steps, count: int, *, at_end: bool) -> Steps:
    """Returns the transitions of the first `count` steps."""
    terminated, truncated = steps.terminated, steps.truncated.copy()
    ended = terminated | truncated
    if at_end:
        truncated[-1] |= not terminated[-1]
    if steps.next_observations:
        return replace(steps, truncated=truncated)[:count]
    omitted = truncated & ~terminated
    truncated[:-1] |= omitted[1:] & ~ended[:-1]
    following = []
    for part in steps.observations:
        after = np.concatenate([part[1:], part[-1:]])
        after[terminated] = part[terminated]
        following.append(after)
    kept = ~omitted
    kept[count:] = False
    return replace(steps, truncated=truncated, next_observations=following)[kept]


def transitions_of_episode(steps: Steps, *, at_end: bool) -> Steps:
    """Maps steps of one episode to transitions.

    Args:
        steps: n steps, with n + 1 observations.
        at_end: Whether the last step is the last one of its episode.
    """
    truncated = steps.truncated.copy()
    if at_end:
        truncated[-1] |= not steps.terminated[-1]
    return replace(
        steps,
        observations=[part[:-1] for part in steps.observations],
        truncated=truncated,
        next_observations=[part[1:] for part in steps.observations],
    )


def regrouped(parts: Iterable[Steps], count: int) -> Iterator[Steps]:
    """Concatenates short parts until there are `count` steps."""
    waiting: list[Steps] = []
    held = 0
    for part in parts:
        waiting.append(part)
        held += len(part)
        if held >= count:
            yield joined(waiting)
            waiting, held = [], 0
    if waiting:
        yield joined(waiting)
