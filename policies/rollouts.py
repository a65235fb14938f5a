"""What acts in a group of environments, without whoever learns."""

from __future__ import annotations

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

    Attributes:
        exploration: As given.
        policy: Maps observations `[G, O]` to scores `[G, A]`; None while actions are random.
        random_until: Up to this step of exploration actions are uniformly random instead.
    """

    def __init__(self, exploration: Exploration, actions: Actions) -> None:
        self.exploration, self._actions = exploration, actions
        self.policy: RowPolicy | None = None
        self.random_until = 0

    def act(self, observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns actions `[G, A]` in [-1, 1], and the same in the environments' units.

        Raises:
            FloatingPointError: If an action is NaN, because a weight or an observation is.
        """
        if self.exploration.step < self.random_until:
            actions = self.exploration.random(observations)
        else:
            assert self.policy is not None
            scores = finite_scores(self.policy(observations), observations)
            actions = self.exploration.explored(scores)
        return actions, self._actions.to_environment(actions)

    def stepped(self, ended: np.ndarray) -> None:
        """Takes which episodes ended, `[G]` bool, in the step that was made."""
        self.exploration.stepped(ended)
