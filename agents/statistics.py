"""What an agent counts while it collects, to normalise observations and rewards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from eagerly.agents.rewards import RewardScaling
from eagerly.networks import ObservationNormalization
from eagerly.networks.moments import RunningMoments

_KEPT_AS = {"observations": "normalization", "rewards": "rewards"}  # in checkpoints


class Statistics:
    """Statistics of observations and rewards, saved and restored as one.

    Args:
        observations: What normalises observations, or None.
        rewards: What scales rewards.
    """

    def __init__(
        self, observations: ObservationNormalization | None, rewards: RewardScaling
    ) -> None:
        moments = {
            "observations": None if observations is None else observations.moments,
            "rewards": rewards.moments,
        }
        self._moments = {name: each for name, each in moments.items() if each is not None}
        self._publish = [rewards.publish, *([] if observations is None else [observations.publish])]

    def publish(self) -> None:
        """Lets networks and updates use what was counted so far.

        Raises:
            ValueError: If nothing was.
        """
        for name, moments in self._moments.items():
            if not moments.count:
                raise ValueError(
                    f"normalize_{name} is set, but no {name} were counted: collect with "
                    "agent.behavior(), which counts what it acts upon and what came of it"
                )
        for publish in self._publish:
            publish()

    def state(self) -> dict[str, Any]:
        """Returns everything that was counted, as JSON."""
        found = {_KEPT_AS[name]: moments.state() for name, moments in self._moments.items()}
        return {"normalization": None} | found

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state` returned.

        Raises:
            ValueError: If it is of something else, or something was not counted then.
        """
        for name, moments in self._moments.items():
            if (saved := state.get(_KEPT_AS[name])) is None:
                raise ValueError(f"normalize_{name} is set, and no statistics of {name} were kept")
            moments.restore(saved)

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns all that was counted, as arrays by `observations/...` and `rewards/...`."""
        return {
            f"{group}/{name}": np.array(value)
            for group, moments in self._moments.items()
            for name, value in moments.state().items()
        }

    def restore_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Takes over what `arrays` returned, of which there may be more.

        Raises:
            ValueError: If they are of something else.
        """
        states = {
            group: {name: arrays[f"{group}/{name}"] for name in moments.state()}
            for group, moments in self._moments.items()
        }
        for group, moments in self._moments.items():  # all or none
            RunningMoments(moments.name, len(moments.mean)).restore(states[group])
        for group, moments in self._moments.items():
            moments.restore(states[group])
