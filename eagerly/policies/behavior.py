"""The behavior policy, which selects actions during data collection."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from eagerly.policies.episode_policy import EpisodePolicy, Episodes
from eagerly.policies.exploration import Exploration
from eagerly.policies.numpy_actor import RowPolicy
from eagerly.policies.returns import CountsRows, DiscountedReturns
from eagerly.spaces import Actions, Observations, first_not_finite
from eagerly.state import Saved


class BehaviorPolicy(Saved):
    """Acts in N environments with the agent's current policy and exploration noise.

    Call `act` and `observe` alternately: `act` returns actions for the current observations,
    `observe` receives the resulting rewards and episode ends. Both calls also update temporally
    correlated noise, recurrent state, and the normalization statistics of observations and rewards.
    `Agent.behavior` creates a behavior policy.

    Each group of environments that selects its own actions has a separate behavior policy, which
    keeps no normalization statistics. The collector's behavior policy keeps them: its `count`
    receives the results of all groups.

    Args:
        policy: Maps observations `[N, O]` to scores `[N, A]`; or an `EpisodePolicy`, which is
            recurrent. None while all actions are uniformly random.
        exploration: Exploration noise and uniformly random actions.
        observations: Layout of the observations.
        actions: Layout of the actions.
        normalization: Observation statistics; None if observations are not normalized.
        returns: Discounted returns; None if rewards are not normalized.

    Attributes:
        row_policy: The policy, unless it is recurrent.
        exploration: Exploration noise and uniformly random actions.
        environments: N of the last call of `act`; 0 before the first one.
        to_environment: Maps actions `[N, A]` to the environments' units.
        counts: Whether the policy updates any normalization statistics.
    """

    _saved = ("exploration", "_episodes", "_returns")

    def __init__(
        self,
        policy: RowPolicy | EpisodePolicy | None,
        exploration: Exploration,
        observations: Observations,
        actions: Actions,
        *,
        normalization: CountsRows | None = None,
        returns: DiscountedReturns | None = None,
    ) -> None:
        # Checked only once: `isinstance` on a protocol is as expensive as acting.
        self._remembering = policy if isinstance(policy, EpisodePolicy) else None
        self.row_policy = None if isinstance(policy, EpisodePolicy) else policy
        self.exploration = exploration
        self._observations, self._actions = observations, actions
        self.to_environment = actions.to_environment
        self._normalization, self._returns = normalization, returns
        self.counts = normalization is not None or returns is not None
        self.environments = 0
        self._episodes: Episodes | None = None
        self._acted: np.ndarray | None = None  # last actions, until `observe` is called

    def act(
        self, observations: np.ndarray, *, explore: bool = True, uniform: bool = False
    ) -> np.ndarray:
        """Selects actions for N environments.

        Args:
            observations: `[N, O]`, as returned by `Observations.flatten`.
            explore: Whether to add exploration noise and sample discrete choices.
            uniform: Whether to draw uniformly random valid actions instead, as in a warm-up.

        Returns:
            `[N, A]`, float32, in [-1, 1]. `Actions.to_environment` converts them.

        Raises:
            ValueError: If the observations have another shape, or `observe` was not called after
                the previous actions.
            FloatingPointError: If a score is NaN or infinite, because a weight or an observation is
                not finite.
        """
        check_rows(observations, self._observations.size)
        if self._acted is not None:
            raise ValueError(
                "act was called twice in a row: after each act, call observe(rewards, ended) with "
                "the results of the actions"
            )
        self.environments = len(observations)
        if self._normalization is not None:
            self._normalization.update(observations)
        scores = None
        if self._remembering is not None:
            if self._episodes is None or len(self._episodes) != len(observations):
                self._episodes = Episodes(self._remembering, len(observations))
            scores = self._episodes.act(observations)
        if uniform:
            self._acted = self.exploration.random(observations)
            return self._acted
        if self.row_policy is not None:
            scores = self.row_policy(observations)
        assert scores is not None
        scores = finite_scores(scores, observations)
        self._acted = (
            self.exploration.explored(scores) if explore else self._actions.decided(scores)
        )
        return self._acted

    def observe(
        self, rewards: np.ndarray, ended: np.ndarray, actions: np.ndarray | None = None
    ) -> None:
        """Records the results of the actions returned by `act`.

        Args:
            rewards: `[N]`.
            ended: `[N]` bool, the environments whose episode ended. Their noise and recurrent state
                are reset.
            actions: `[N, A]` in [-1, 1], the executed actions if they differ from those returned by
                `act`.

        Raises:
            ValueError: If `act` was not called before, or a shape is wrong.
        """
        if self._acted is None:
            raise ValueError("observe was called before act: call act first to select actions")
        count, ended = len(self._acted), np.asarray(ended, bool)
        if np.shape(rewards) != (count,) or np.shape(ended) != (count,):
            raise ValueError(
                f"rewards and ended must have shape [{count}]; got {np.shape(rewards)} and "
                f"{np.shape(ended)}"
            )
        if self._episodes is not None:
            self._episodes.acted(self._acted if actions is None else actions, rewards, ended)
        self._acted = None
        if self._returns is not None:
            self._returns.update(rewards, ended)
        self.exploration.stepped(ended)

    @property
    def waits(self) -> bool:
        """Whether `observe` must be called next."""
        return self._acted is not None

    def count(self, observations: np.ndarray, rewards: np.ndarray, ended: np.ndarray) -> None:
        """Updates the normalization statistics for a step without `act` and `observe`.

        Args:
            observations: `[N, O]`, the observations before the step.
            rewards: `[N]`.
            ended: `[N]` bool.
        """
        if self._normalization is not None:
            self._normalization.update(observations)
        if self._returns is not None:
            self._returns.update(rewards, ended)

    def on_reset(self, began: np.ndarray) -> None:
        """Resets noise, recurrent state and discounted returns after episodes were cut short.

        Args:
            began: Mask of the environments in which a new episode begins, `[N]` bool.
        """
        self._acted, began = None, np.asarray(began, bool)
        if self._episodes is not None and len(began) == len(self._episodes):
            self._episodes.begin(began)
        if self._returns is not None:
            self._returns.on_reset(began)
        self.exploration.on_reset(began)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores a state returned by `state`.

        Raises:
            ValueError: If the state does not fit this policy.
        """
        if self._remembering is not None and state["episodes"] is not None:
            self._episodes = Episodes(self._remembering, len(state["episodes"]["rewards"]))
        super().restore(state)
        self._acted = None


def check_rows(observations: np.ndarray, size: int) -> None:
    """Checks that observations are a batch `[N, O]`.

    Raises:
        ValueError: If they have another shape. The message suggests a fix.
    """
    shape = getattr(observations, "shape", None)
    if shape is None or shape[1:] != (size,):
        raise ValueError(
            f"observations must have shape [N, {size}], got "
            f"{type(observations).__name__ if shape is None else shape}: convert one observation "
            "with agent.observations.flatten(observation)[np.newaxis]"
        )


def finite_scores(scores: np.ndarray, observations: np.ndarray) -> np.ndarray:
    """Returns scores as float32, after checking that they and the observations are finite.

    An infinite observation can have finite scores, because a layer may clip or saturate.

    Raises:
        FloatingPointError: If an observation or a score is NaN or infinite.
    """
    scores = scores.astype(np.float32, copy=False)
    if not np.isfinite(observations).all():
        raise FloatingPointError(
            f"observation must be finite; got {first_not_finite(observations)}"
        )
    if not math.isfinite(scores.sum()):
        raise FloatingPointError(f"action must be finite; got {scores.tolist()} for {observations}")
    return scores
