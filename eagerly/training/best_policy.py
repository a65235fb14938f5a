"""The policies stored in a checkpoint: the evaluated policy and the best one so far."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from eagerly.agents.agent import Agent
from eagerly.networks.acting import KerasPolicy, MemoryPolicy
from eagerly.storage.built_in_settings import describing_class
from eagerly.training.policy_checkpoints import PolicyCheckpoints

Weights = dict[str, np.ndarray]


class BestPolicyTracker:
    """Tracks the evaluated policy and keeps its weights from the best evaluation.

    Args:
        agent: The agent.
        kept: Policy checkpoints, whose policy is evaluated instead of the agent's; None to evaluate
            the agent's policy.

    Attributes:
        best_step: The step of the best evaluation since the first update; None without one.
        best_return: The mean return of that evaluation; -inf without one.
    """

    def __init__(self, agent: Agent, kept: PolicyCheckpoints | None = None) -> None:
        self._agent, self._kept = agent, kept
        self._settings_class = describing_class(agent)
        self._best: Weights = {}
        self._override = -1  # evaluations up to this step do not count
        self.best_step: int | None = None
        self.best_return = -math.inf

    @property
    def evaluated(self) -> dict[str, KerasPolicy | MemoryPolicy]:
        """The evaluated policies: the main one under "", the agent's own under "current"."""
        if self._kept is None:
            return {"": self._agent.policy}
        return {"": self._kept.policy, "current": self._agent.policy}

    @property
    def updates(self) -> int:
        """Updates so far; 0 if the evaluated policy has not been updated."""
        has_learned = self._kept is None or self._kept.has_learned
        return self._agent.updates if has_learned else 0

    def begin_with_given(self) -> None:
        """With policy checkpoints, keeps the agent's initial policy, which is from another run."""
        if self._kept is not None:
            self._kept.take_policy()
            self._kept.was_given = True

    def compare(self, step: int, mean_return: float) -> bool:
        """Keeps the weights if their mean return is the best so far; returns whether it is.

        Evaluations before the first update do not count: a good score then is luck, not learning.
        """
        is_best = self.best_step is None or mean_return > self.best_return
        if not (is_best and self.updates and step > self._override):
            return False
        self.best_step, self.best_return = step, float(mean_return)
        self._best = self._weights()
        return True

    def _weights(self) -> Weights:
        return self._agent.policy_weights() if self._kept is None else self._kept.weights

    def restart(self, step: int) -> None:
        """Restarts the search for the best policy, and for the kept one, after an override.

        Args:
            step: The step of the override. Evaluations up to this step do not count.
        """
        self._forget_best()
        self._override = step
        if self._kept is not None:
            self._kept.forget_best()

    def _forget_best(self) -> None:
        self.best_step, self.best_return, self._best = None, -math.inf, {}

    def state(self) -> dict[str, Any]:
        """Returns the current weights, and the step, return and weights of the best policy.

        `settings_class` names the built-in class that describes the actor; see `describing_class`.
        """
        best = {"step": self.best_step, "return": self.best_return, "weights": self._best}
        return {
            "settings_class": self._settings_class,
            "latest": self._weights(),
            "best": None if self.best_step is None else best,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores the best policy from the result of `state`.

        Raises:
            ValueError: If the best return is not finite.
        """
        self._forget_best()
        if (best := state["best"]) is not None:
            if not math.isfinite(best["return"]):
                raise ValueError(f"the best return must be finite; got {best['return']}")
            self.best_step, self.best_return = int(best["step"]), float(best["return"])
            self._best = dict(best["weights"])
