"""The policies that a checkpoint keeps: the one that is evaluated, and the best one so far."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from eagerly.agents.agent import Agent
from eagerly.networks.acting import KerasPolicy, MemoryPolicy
from eagerly.training.policy_checkpoints import PolicyCheckpoints

Weights = dict[str, np.ndarray]


class BestPolicyTracker:
    """The policy that is evaluated: its weights as they are, and as they were at their best.

    Args:
        agent: The agent that learns.
        kept: Policy checkpoints, whose policy is evaluated in place of the agent's; None: without.

    Attributes:
        best_step: The step of the best evaluation; None before the first one that counts.
        best_return: Its mean return, -inf before the first one that counts.
    """

    def __init__(self, agent: Agent, kept: PolicyCheckpoints | None = None) -> None:
        self._agent, self._kept = agent, kept
        self._best: Weights = {}
        self.best_step: int | None = None
        self.best_return = -math.inf

    @property
    def evaluated(self) -> dict[str, KerasPolicy | MemoryPolicy]:
        """What is evaluated: the policy under "", and one that is not kept under "current"."""
        if self._kept is None:
            return {"": self._agent.policy}
        return {"": self._kept.policy, "current": self._agent.policy}

    @property
    def updates(self) -> int:
        """Updates so far, or 0 while the policy that is evaluated has had none."""
        has_learned = self._kept is None or self._kept.has_learned
        return self._agent.updates if has_learned else 0

    def begin_with_given(self) -> None:
        """Takes over the policy of another run, which the agent begins with."""
        if self._kept is not None:
            self._kept.take_policy()
            self._kept.was_given = True

    def compare(self, step: int, mean_return: float) -> bool:
        """Keeps the weights if their mean return is the best so far, and returns whether it is.

        An evaluation before the first update does not count: a lucky initialization would be kept
        as what was learned.
        """
        if not self.updates or (self.best_step is not None and mean_return <= self.best_return):
            return False
        self.best_step, self.best_return = step, float(mean_return)
        self._best = self._weights()
        return True

    def _weights(self) -> Weights:
        return self._agent.policy_weights() if self._kept is None else self._kept.weights

    def forget_best(self) -> None:
        """Begins the search for the best policy anew."""
        self.best_step, self.best_return, self._best = None, -math.inf, {}

    def state(self) -> dict[str, Any]:
        """Returns the weights, and the step and return of the best."""
        best = {"step": self.best_step, "return": self.best_return, "weights": self._best}
        return {"latest": self._weights(), "best": None if self.best_step is None else best}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over the best policy of what `state` returned.

        Raises:
            ValueError: If its return is not finite.
        """
        self.forget_best()
        if (best := state["best"]) is not None:
            if not math.isfinite(best["return"]):
                raise ValueError(f"the best return is {best['return']}")
            self.best_step, self.best_return = int(best["step"]), float(best["return"])
            self._best = dict(best["weights"])
