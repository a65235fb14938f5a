"""Policy checkpoints: the policy that is kept is the one whose worst episode was the best."""

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
    """Judges the current policy by the episodes that it collects, and keeps the best one.

    Fujimoto et al. 2023, "For SALE: State-Action Representation Learning for Deep Reinforcement
    Learning", section 5.1. A policy is as good as its worst episode. Once that is worse than the
    kept policy's, the policy is trained at once. After enough episodes it is kept instead, and then
    trained. Training makes the updates that all steps since the last time owe, in whole calls.

    An episode during which the policy changed, because another environment's episode ended, does
    not count.

    Args:
        agent: The agent whose policy is judged.
        config: The settings of the run.

    Attributes:
        policy: Calls the policy that is kept; at first the agent's own.
        best: The worst return of the policy that is kept; None before there is one.
        kept: How many policies were kept so far.
        has_learned: Whether the policy that is kept has had an update.
        was_given: Whether the first policy is that of another run, and not an untrained one.
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
        self.take_policy()  # a factory of the user may have drawn other weights
        self.best: float | None = None
        self.kept, self.has_learned, self.was_given = 0, False, False
        self._is_rescaled = False
        self._worst: float | None = None  # of the current policy
        self._judged = 0  # its episodes
        # `[N]`: whether an environment's episode began under an earlier policy, or at random.
        self._stale = np.zeros(0, bool)
        self._waiting = 0  # steps that owe updates once the policy may change
        self._has_begun = False  # whether a step has owed updates
        self._since_end = 0  # steps of each environment since an episode ended

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """The weights of the policy that is kept, by path."""
        return weights_by_path(self._model)

    @weights.setter
    def weights(self, weights: Mapping[str, np.ndarray]) -> None:
        assign_weights(self._model, weights)
        self.policy.refresh()

    def take_policy(self) -> None:
        """Makes the kept policy a copy of the agent's."""
        copy_variables(self._agent.acting, self._model)
        self.policy.refresh()

    def record_rollout(self, rollout: Rollout, steps: int) -> None:
        """Counts the steps of a round, and where episodes ended judges the policy.

        Raises:
            RunStoppedError: If no episode has ended in 100,000 steps of each environment.
        """
        self._waiting += steps
        self._has_begun = self._has_begun or steps > 0
        self._since_end += len(rollout.rewards)
        if rollout.episodes:
            self._since_end = 0
            self._judge(rollout)
        elif self._since_end > LONGEST_EPISODE:
            raise RunStoppedError(
                f"no episode has ended in {LONGEST_EPISODE} steps of each environment, and with "
                "--policy-checkpoints updates are made only at the ends of episodes: give the "
                "environment a time limit, or begin another run with --no-policy-checkpoints"
            )

    def _judge(self, rollout: Rollout) -> None:
        """Judges the current policy, keeps it if it is no worse, and lets it be trained."""
        self._count(rollout)
        if self._owed + self._step * self._waiting < self._call:
            return  # nothing would change: the same policy continues, and so does its judgment
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
        """Whether the current policy is already known to be worse than the one that is kept."""
        return self._worst is not None and self.best is not None and self._worst < self.best

    def _count(self, rollout: Rollout) -> None:
        """Counts the episodes of a round that the current policy collected from their beginning."""
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
        """Marks the environments within an episode, which the next policy will not have begun."""
        self._stale = ~rollout.ended[-1]

    def scalars(self) -> dict[str, float]:
        """Returns how many policies were kept, and the worst return of the one that is."""
        found = {"checkpoints/kept": float(self.kept)}
        return found if self.best is None else found | {"checkpoints/worst_return": self.best}
