"""What an agent counts while it collects, to normalise observations and rewards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from eagerly.agents.rewards import RewardScaling
from eagerly.networks import ObservationNormalization
from eagerly.networks.moments import RunningMoments
from eagerly.state import Saved


class Statistics(Saved):
    """Statistics of observations and rewards, saved and restored as one.

    Args:
        observations: What normalises observations, or None.
        rewards: What scales rewards.

    Attributes:
        moments: The statistics by name, "observations" and "rewards"; those that are normalised.
    """

    _saved = ("moments",)

    def __init__(
        self, observations: ObservationNormalization | None, rewards: RewardScaling
    ) -> None:
        moments = {
            "observations": None if observations is None else observations.moments,
            "rewards": rewards.moments,
        }
        self.moments = {name: each for name, each in moments.items() if each is not None}
        self._syncs = [rewards.sync, *([] if observations is None else [observations.sync])]

    def sync(self) -> None:
        """Lets networks and updates use what was counted so far.

        Raises:
            ValueError: If nothing was.
        """
        for name, moments in self.moments.items():
            if not moments.count:
                raise ValueError(
                    f"normalize_{name} is set, but no {name} were counted: collect with "
                    "agent.behavior(). If it returns a BehaviorPolicy of your own, create that "
                    "with normalization=agent.normalization and returns=agent.rewards.returns()"
                )
        for sync in self._syncs:
            sync()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state` returned.

        Raises:
            ValueError: If it is of something else, or something was not counted then.
        """
        for name in self.moments:
            if name not in state["moments"]:
                raise ValueError(f"normalize_{name} is set, and no statistics of {name} were kept")
        super().restore(state)

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns all that was counted, as arrays by `observations/...` and `rewards/...`."""
        return {
            f"{group}/{name}": np.array(value)
            for group, moments in self.moments.items()
            for name, value in moments.state().items()
        }

    def restore_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Takes over what `arrays` returned, of which there may be more.

        Raises:
            ValueError: If they are of something else.
        """
        states = {
            group: {
                "count": int(arrays[f"{group}/count"]),
                "mean": np.asarray(arrays[f"{group}/mean"]),
                "squares": np.asarray(arrays[f"{group}/squares"]),
            }
            for group in self.moments
        }
        for group, moments in self.moments.items():  # all or none
            RunningMoments(moments.name, len(moments.mean)).restore(states[group])
        for group, moments in self.moments.items():
            moments.restore(states[group])
