"""Policy checkpoints: keeps the policy whose worst episode has the highest return."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import ClassVar

import numpy as np

from eagerly.agents.agent import Agent
from eagerly.environments.group import Rollout
from eagerly.errors import RunStoppedError
from eagerly.networks import acting_policy
from eagerly.networks.models import assign_weights, copy_variables, weights_by_path
from eagerly.storage.config import RunConfig
from eagerly.training.update_budget import UpdateBudget

LONGEST_EPISODE = 100_000  # steps


class PolicyCheckpoints(UpdateBudget):
    """Assesses the current policy by the episodes that it collects, and keeps the best policy.

    Fujimoto et al. 2023, "For SALE: State-Action Representation Learning for Deep Reinforcement
    Learning", section 5.1. A policy's score is the return of its worst episode. As soon as it
    falls below the kept policy's score, the assessment ends. If it does not fall below that score
    within the required number of episodes, the current policy replaces the kept one. In both cases,
    the updates deferred since the last assessment are then made, in whole calls of the train body.

    An episode does not count if the policy changed during it, because another environment's
    episode ended.

    Args:
        agent: The agent whose policy is assessed.
        config: The settings of the run.

    Attributes:
        policy: The kept policy; initially a copy of the agent's.
        best: The return of the kept policy's worst episode; None before a policy is kept.
        kept: How many policies have been kept so far.
        has_learned: Whether the kept policy results from at least one update.
        was_given: Whether the initial policy comes from another run and is therefore trained.
    """

    warmup_ends_with_episode: ClassVar[bool] = True
    _saved = (
        *("owed", "best", "kept", "has_learned", "was_given", "_is_rescaled", "_worst", "_judged"),
        *("_stale", "_waiting", "_has_begun", "_since_end", "weights"),
    )

    def __init__(self, agent: Agent, config: RunConfig) -> None:
        super().__init__(Fraction(str(config.replay_ratio)), config.updates_per_call)
        self._agent, self._config = agent, config
        self._model = agent.another_policy()
        self.policy = acting_policy(self._model, agent.actions.size)
        self.take_policy()  # a custom factory may initialize this model differently
        self.best: float | None = None
        self.kept, self.has_learned, self.was_given = 0, False, False
        self._is_rescaled = False
        self._worst: float | None = None  # return of the current policy's worst episode
        self._judged = 0  # episodes of the current policy
        # `[N]`: whether an environment's episode began with an earlier policy or random actions.
        self._stale = np.zeros(0, bool)
        self._waiting = 0  # steps whose updates are deferred until the policy may change
        self._has_begun = False  # whether any step after the warm-up has been made
        self._since_end = 0  # steps per environment since an episode ended

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """The weights of the kept policy, by path."""
        return weights_by_path(self._model)

    @weights.setter
    def weights(self, weights: Mapping[str, np.ndarray]) -> None:
        assign_weights(self._model, weights)
        self.policy.refresh()

    def take_policy(self) -> None:
        """Copies the agent's policy to the kept policy."""
        copy_variables(self._agent.acting, self._model)
        self.policy.refresh()

    def forget_best(self) -> None:
        """Keeps the next policy that is assessed: earlier returns may not be comparable."""
        self.best, self._worst, self._judged = None, None, 0

    def record_rollout(self, rollout: Rollout, steps: int) -> None:
        """Counts the steps of a round, and assesses the policy if an episode ended.

        Raises:
            RunStoppedError: If no episode has ended for more than 100,000 steps per environment.
        """
        self._waiting += steps
        self._has_begun = self._has_begun or steps > 0
        self._since_end += len(rollout.rewards)
        if rollout.episodes:
            self._since_end = 0
            self._judge(rollout)
        elif self._since_end > LONGEST_EPISODE:
            raise RunStoppedError(
                f"no episode has ended within {LONGEST_EPISODE} steps per environment, and with "
                "--policy-checkpoints updates are made only when an episode ends: give the "
                "environment a time limit, or start a new run with --no-policy-checkpoints"
            )

    def _judge(self, rollout: Rollout) -> None:
        """Assesses the current policy; if decided, keeps or rejects it and permits the updates."""
        self._count(rollout)
        if self._owed + self._step * self._waiting < self._call:
            return  # no update would follow: continue to assess the same policy
        config, updates = self._config, self._agent.updates
        is_late = updates > config.checkpoint_episodes_after
        if is_late and not self._is_rescaled:
            self._is_rescaled = True
            self.best = None if self.best is None else self.best * config.checkpoint_reset
        is_untrained = not (updates or self.was_given)
        is_left_out = is_untrained and not config.checkpoint_untrained
        if not (self._is_worse or is_left_out):
            if self._judged < (config.checkpoint_episodes if is_late else 1):
                return
            self.best, self.kept, self.has_learned = self._worst, self.kept + 1, updates > 0
            self.take_policy()
        self._worst, self._judged = None, 0
        self._mark(rollout)
        super().record_rollout(rollout, self._waiting)
        self._waiting = 0

    @property
    def _is_worse(self) -> bool:
        """Whether the current policy is already known to be worse than the kept one."""
        return self._worst is not None and self.best is not None and self._worst < self.best

    def _count(self, rollout: Rollout) -> None:
        """Counts the episodes of a round that the current policy collected from their start."""
        if not self._has_begun:
            self._mark(rollout)
            return
        if len(self._stale) != rollout.rewards.shape[1]:
            self._stale = np.zeros(rollout.rewards.shape[1], bool)
        for episode in rollout.episodes:
            if not self._stale[episode.environment]:
                worst = episode.total_reward if self._worst is None else self._worst
                self._worst = min(worst, episode.total_reward)
                self._judged += 1
            self._stale[episode.environment] = False

    def _mark(self, rollout: Rollout) -> None:
        """Marks the environments in mid-episode: the next policy did not start these episodes."""
        self._stale = ~rollout.ended[-1]

    def scalars(self) -> dict[str, float]:
        """Returns the number of kept policies, and the worst return of the current kept policy."""
        found = {"checkpoints/kept": float(self.kept)}
        return found if self.best is None else found | {"checkpoints/worst_return": self.best}
