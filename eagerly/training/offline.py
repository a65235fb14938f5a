"""Takes the place of a `Collector` in offline training, where nothing is collected."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from eagerly.environments.group import UNCHANGED, Rollout
from eagerly.spaces import Actions, Observations
from eagerly.state import Saved


class NoEnvironments:
    """Takes the place of `Environments`.

    Attributes:
        lost: Mask of the environments that had to start a new episode: empty.
        why_lost, why_changed, keeps_kwargs: As there, unused.
        kwargs: Changed keyword arguments: none.
        num_collectors: Number of collectors: 0.
        repeats: Whether episodes repeat: unknown.
    """

    lost = np.zeros(0, bool)
    why_lost = why_changed = ""
    kwargs, keeps_kwargs = UNCHANGED, True
    num_collectors = 0
    repeats: bool | None = None

    def expect_stop(self, *, expected: bool = True) -> None:
        """Does nothing."""


class OfflineCollector(Saved):
    """Counts steps that collect nothing. Each step permits updates, as if it had been collected.

    Args:
        observations: Layout of the observations.
        actions: Layout of the actions.

    Attributes:
        steps: Steps so far.
        steps_owing_updates: Steps of the newest round.
        environments: No environments.
    """

    _saved: ClassVar[tuple[str, ...]] = ("steps",)

    def __init__(self, observations: Observations, actions: Actions) -> None:
        self.steps, self.steps_owing_updates = 0, 1
        self.environments = NoEnvironments()
        row, act = np.zeros((1, 0, observations.size), np.float32), actions.size
        empty = np.zeros((1, 0))
        self._nothing = Rollout(
            observations=np.concatenate([row, row]),
            actions=np.zeros((1, 0, act), np.float32),
            executed=empty,
            rewards=empty,
            terminated=empty.astype(bool),
            truncated=empty.astype(bool),
            last=row[0],
            infos=[],
            kept=None,
        )

    def begin(self) -> None:
        """Does nothing."""

    def collect(self) -> Rollout:
        """Counts a step, and returns a rollout without environments."""
        self.steps += 1
        return self._nothing
