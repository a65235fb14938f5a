"""Policies for users: from an observation to an action in the environment's units."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerly.policies.behavior import finite_scores
from eagerly.policies.episode_policy import EpisodePolicy, Episodes
from eagerly.policies.numpy_actor import RowPolicy
from eagerly.spaces import Actions, Observations


class Policy:
    """A deterministic policy: a function of the observation or, if recurrent, of the episode.

    With a built-in actor, it needs only NumPy. It can then be pickled and copied, and called from
    several threads at once, each with its own episodes. With a custom model, it calls TensorFlow:
    use it from one thread at a time, and only in this process.

    Args:
        actor: Maps rows `[N, O]` to scores `[N, A]`; or an `EpisodePolicy`, which is recurrent.
        observations: Layout of the observations.
        actions: Layout of the actions, which converts scores into actions.
        steps: Environment steps of training.
        which: Selected policy of the run, "best" or "latest".

    Attributes:
        actor: The actor. A built-in one is a `NumpyActor` or `NumpyMemoryActor`.
        observation_space, action_space: The spaces of the environment.
        observation_size: O.
        action_size: A.
        steps: Environment steps of training.
        which: "best" or "latest".
        remembers: Whether it is recurrent. If so, it acts in episodes, see `start_episode`.
    """

    def __init__(
        self,
        actor: RowPolicy | EpisodePolicy,
        observations: Observations,
        actions: Actions,
        steps: int,
        which: str = "latest",
    ) -> None:
        self.actor: Any = actor
        self.which, self._observations, self._actions = which, observations, actions
        self.observation_space, self.action_space = observations.space, actions.space
        self.observation_size, self.action_size, self.steps = observations.size, actions.size, steps
        self.remembers = isinstance(actor, EpisodePolicy)

    def __call__(self, observation: Any, action_mask: Any = None) -> Any:
        """Returns an action, or one for each row of a batch.

        The last bits of an action can depend on whether its observation is in a batch.

        Args:
            observation: An observation of the environment, `[O]` for a flat `Box`; or N of them,
                each part with a leading axis N.
            action_mask: The valid discrete actions, in the form of `info["action_mask"]`; N masks
                for N observations. None: all are valid.

        Returns:
            An action for the environment; for a `Box`, `[A]` in its units, bounds and dtype. For N
            observations N actions, each part with a leading axis N.

        Raises:
            ValueError: If the observation or the mask does not match its space, or the policy is
                recurrent.
            FloatingPointError: If the action would be NaN, for example because the observation is.
        """
        if self.remembers:
            raise ValueError(
                "this policy is recurrent: start an episode with act = policy.start_episode(), "
                "then call act(observation), and act(observation, reward) after each step"
            )
        rows, single = self._rows(observation, action_mask)
        return self._to_environment(
            self._actions.decided(finite_scores(self.actor(rows), rows)), single
        )

    def start_episode(self, count: int | None = None) -> PlayedEpisodes:
        """Starts an episode, or N in parallel. Call the result at every step to get actions.

        If the policy is not recurrent, these are the actions of the policy itself.

        Args:
            count: N; None for one episode, whose observations have no axis N.
        """
        return PlayedEpisodes(self, count)

    def parts(self, observation: Any) -> list[Any]:
        """Returns the parts of an observation that the policy reads, excluding ignored ones.

        Raises:
            ValueError: If one is missing.
        """
        return list(self._observations.parts(observation))

    def _rows(self, observation: Any, action_mask: Any) -> tuple[np.ndarray, bool]:
        if not self._observations.is_row:
            if action_mask is not None and not self._observations.masked:
                action_mask = None  # trained to ignore masks
            mask = None if action_mask is None else self._actions.mask(action_mask)
            rows = self._observations.flatten(observation, mask)
        else:
            rows = np.asarray(observation, np.float32)
            if rows.ndim not in (1, 2) or rows.shape[-1] != self.observation_size:
                size = self.observation_size
                raise ValueError(
                    f"observation must have shape [{size}] or [N, {size}]; got {rows.shape}"
                )
        single = rows.ndim == 1
        return rows[np.newaxis] if single else rows, single

    def _to_environment(self, actions: np.ndarray, single: bool) -> Any:
        """Converts actions `[N, A]` to the format of the environment."""
        rows = self._actions.to_environment(actions)
        return self._actions.unflatten(rows[0] if single else rows)

    def __repr__(self) -> str:
        sizes = f"observation_size={self.observation_size}, action_size={self.action_size}"
        return f"Policy({sizes}, steps={self.steps}, which={self.which!r})"


class PlayedEpisodes:
    """Acts in one episode, or in N in parallel, and keeps the recurrent state.

    `Policy.start_episode` creates it.

    Args:
        policy: The policy.
        count: N; None for one episode, whose observations are `[O]`.
    """

    def __init__(self, policy: Policy, count: int | None) -> None:
        self._policy, self._count = policy, count
        self._episodes = Episodes(policy.actor, count or 1) if policy.remembers else None
        self._acted: np.ndarray | None = None

    def __call__(
        self,
        observation: Any,
        reward: float | np.ndarray | None = None,
        ended: np.ndarray | None = None,
        action_mask: Any = None,
    ) -> Any:
        """Returns the next action.

        Args:
            observation: As for `Policy`; N of them for N episodes.
            reward: The reward of the previous action, received with this observation; `[N]` for N
                episodes. Omit it for the first observation. It has no effect if the policy is not
                recurrent.
            ended: Which of N episodes ended before this observation, `[N]` bool. There, this is the
                first observation of the next episode. After a single episode, call `start_episode`
                again instead.
            action_mask: As for `Policy`.

        Returns:
            An action, or N of them, as returned by `Policy`.

        Raises:
            ValueError: If a shape is wrong, or the policy is recurrent and the reward is missing.
            FloatingPointError: If the action would be NaN.
        """
        policy, episodes = self._policy, self._episodes
        if episodes is None:
            return policy(observation, action_mask)
        rows, single = policy._rows(observation, action_mask)
        if single != (self._count is None) or len(rows) != len(episodes):
            size = policy.observation_size
            expected = f"[{size}]" if self._count is None else f"[{self._count}, {size}]"
            raise ValueError(f"observation must have shape {expected}; got {np.shape(observation)}")
        if self._acted is not None:
            if reward is None:
                raise ValueError(
                    "reward is missing: a recurrent policy needs the reward of its previous action"
                )
            rewards = np.broadcast_to(np.asarray(reward, np.float32), (len(rows),))
            none = np.zeros(len(rows), bool)
            episodes.acted(self._acted, rewards, none if ended is None else np.asarray(ended, bool))
        elif reward is not None or ended is not None:
            raise ValueError("reward and ended must be omitted for the first observation")
        self._acted = policy._actions.decided(finite_scores(episodes.act(rows), rows))
        return policy._to_environment(self._acted, single)
