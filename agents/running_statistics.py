"""Statistics collected during exploration, to normalize observations and rewards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from eagerly.agents.rewards import RewardScaling
from eagerly.networks import ObservationNormalization
from eagerly.networks.moments import RunningMoments
from eagerly.state import Saved


class Statistics(Saved):
    """Statistics of observations and rewards, saved and restored together.

    Args:
        observations: Normalizes observations; None if they are not normalized.
        rewards: Scales rewards.
        actor: Normalizes the observations of the actor with the same moments; None if
            `observations` does.

    Attributes:
        moments: Running moments by normalized quantity, "observations" or "rewards".
        layers: The layers that normalize observations.
    """

    _saved = ("moments",)

    def __init__(
        self,
        observations: ObservationNormalization | None,
        rewards: RewardScaling,
        actor: ObservationNormalization | None = None,
    ) -> None:
        moments = {
            "observations": None if observations is None else observations.moments,
            "rewards": rewards.moments,
        }
        self.moments = {name: each for name, each in moments.items() if each is not None}
        self.layers = [layer for layer in (observations, actor) if layer is not None]
        self._syncs = [rewards.sync, *(layer.sync for layer in self.layers)]

    def sync(self) -> None:
        """Applies the current statistics to networks and updates.

        Raises:
            ValueError: If a normalized quantity has no statistics yet.
        """
        for name, moments in self.moments.items():
            if not moments.count:
                logged = "agent.normalization.update(observations)"
                logged = f", or pass logged ones to {logged}" if name == "observations" else ""
                raise ValueError(
                    f"normalize_{name} is set, but no {name} were recorded: collect with "
                    f"agent.behavior(){logged}. Create a custom BehaviorPolicy with "
                    "normalization=agent.normalization and returns=agent.rewards.returns()"
                )
        for sync in self._syncs:
            sync()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores a state returned by `state()`.

        Raises:
            ValueError: If the state does not match, or the settings need other statistics.
        """
        for name in sorted(self.moments.keys() ^ state["moments"].keys()):
            is_set, has = ("is", "has no") if name in self.moments else ("is not", "has")
            raise ValueError(
                f"normalize_{name} {is_set} set, but the state {has} statistics of {name}"
            )
        super().restore(state)

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns all statistics as arrays named `observations/...` and `rewards/...`."""
        return {
            f"{group}/{name}": np.array(value)
            for group, moments in self.moments.items()
            for name, value in moments.state().items()
        }

    def restore_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restores the statistics returned by `arrays()`. Arrays with other names are ignored.

        Raises:
            ValueError: If an array does not match; nothing is changed.
        """
        states = {
            group: {
                "count": int(arrays[f"{group}/count"]),
                "mean": np.asarray(arrays[f"{group}/mean"]),
                "squares": np.asarray(arrays[f"{group}/squares"]),
            }
            for group in self.moments
        }
        for group, moments in self.moments.items():  # validate all before changing any
            RunningMoments(moments.name, len(moments.mean)).restore(states[group])
        for group, moments in self.moments.items():
            moments.restore(states[group])
