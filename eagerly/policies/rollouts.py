"""What acts in a group of environments, without whoever learns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from eagerly.policies.behavior import finite_scores
from eagerly.policies.exploration import Exploration
from eagerly.policies.numpy_actor import RowPolicy
from eagerly.spaces import Actions


class RolloutPolicy:
    """Acts in the G environments of a group with one version of the policy.

    Args:
        exploration: The group's.
        actions: How actions are laid out.
    """

    def __init__(self, exploration: Exploration, actions: Actions) -> None:
        self._exploration, self._actions = exploration, actions
        self._policy: RowPolicy | None = None
        self._random_until = 0

    def begin(
        self,
        policy: RowPolicy | None,
        random_steps: int,
        exploration: Mapping[str, Any],
        fresh: np.ndarray | None = None,
    ) -> None:
        """Takes what the next steps are made with.

        Args:
            policy: Maps observations `[G, O]` to scores `[G, A]`; None while actions are random.
            random_steps: So many steps are uniformly random at first.
            exploration: The state of exploration, see `Exploration.state`.
            fresh: Where an episode began although none ended, `[G]` bool; None: nowhere.
        """
        self._policy = policy
        self._exploration.restore(exploration)
        if fresh is not None:
            self._exploration.noise.begin_episodes(fresh)
        self._random_until = self._exploration.step + random_steps

    def state(self) -> dict[str, Any]:
        """Returns the state of exploration."""
        return self._exploration.state()

    def act(self, observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns actions `[G, A]` in [-1, 1], and the same in the environments' units.

        Raises:
            FloatingPointError: If an action is NaN, because a weight or an observation is.
        """
        if self._exploration.step < self._random_until:
            actions = self._exploration.random(observations)
        else:
            assert self._policy is not None
            scores = finite_scores(self._policy(observations), observations)
            actions = self._exploration.explored(scores)
        return actions, self._actions.to_environment(actions)

    def stepped(self, ended: np.ndarray) -> None:
        """Takes which episodes ended, `[G]` bool, in the step that was made."""
        self._exploration.stepped(ended)
