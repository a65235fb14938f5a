"""Policies for users: from an observation to an action in the environment's units."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerly.policies.behavior import finite_scores
from eagerly.policies.episode_policy import EpisodePolicy, Episodes
from eagerly.policies.numpy_actor import RowPolicy
from eagerly.spaces import Actions, Observations


class Policy:
    """A deterministic policy: a function of the observation or, if recurrent, the episode so far.

    A policy with a built-in actor needs only NumPy. It can be pickled, copied, and called from
    several threads at once, each with separate episodes. A policy with a custom model calls
    TensorFlow: use it from one thread at a time, and only in this process.

    Args:
        actor: Maps rows `[N, O]` to scores `[N, A]`; or an `EpisodePolicy`, which is recurrent.
        observations: Layout of the observations. Entries that only critics see are not read.
        actions: Layout of the actions, which converts scores into actions.
        steps: Environment steps of training.
        which: Which policy of the run this is, "best" or "latest".

    Attributes:
        actor: The actor. A built-in one is a `NumpyActor` or `NumpyMemoryActor`.
        observation_space, action_space: The spaces of the environment.
        observation_size: O, without the columns that only critics see.
        action_size: A.
        steps: Environment steps of training.
        which: "best" or "latest".
        remembers: Whether the policy is recurrent. Call a recurrent policy through `start_episode`.
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
        self.which, self._observations, self._actions = which, observations.actor, actions
        self.observation_space, self.action_space = observations.space, actions.space
        self.observation_size, self.action_size = self._observations.size, actions.size
        self.steps = steps
        self.remembers = isinstance(actor, EpisodePolicy)

    def __call__(self, observation: Any, action_mask: Any = None) -> Any:
        """Returns an action, or one for each row of a batch.

        The last bits of an action can depend on whether its observation is in a batch.

        Args:
            observation: An observation of the environment, `[O]` for a flat `Box`; or a batch of N
                observations, in which each array has a leading axis N.
            action_mask: The valid discrete actions, in the form of `info["action_mask"]`; N masks
                for N observations. None: all are valid.

        Returns:
            An action for the environment; for a `Box`, `[A]` in its units, bounds and dtype. For N
            observations, a batch of N actions, in which each array has a leading axis N.

        Raises:
            ValueError: If the observation or the mask does not match its space, or the policy is
                recurrent.
            FloatingPointError: If the action would be NaN, for example because the observation
                contains NaN.
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

        If the policy is not recurrent, the actions are the same as those of calling the policy
        directly.

        Args:
            count: N; None for one episode, whose observations have no axis N.
        """
        return PlayedEpisodes(self, count)

    def parts(self, observation: Any) -> dict[str, Any]:
        """Returns the entries of an observation that the policy reads, by path.

        Raises:
            ValueError: If an entry is missing.
        """
        paths = (entry.path for entry in self._observations.entries)
        return dict(zip(paths, self._observations.parts(observation), strict=True))

    def _rows(self, observation: Any, action_mask: Any) -> tuple[np.ndarray, bool]:
        if not self._observations.is_row:
            if action_mask is not None and not self._observations.masked:
                action_mask = None  # the policy was trained to ignore masks
            mask = None if action_mask is None else self._actions.mask(action_mask)
            rows = self._observations.flatten(observation, mask)
        else:
            try:
                rows = np.asarray(observation, np.float32)
            except (TypeError, ValueError, OverflowError) as error:
                more = ": reset() and step() return more than the observation"
                hint = more if isinstance(observation, tuple) else ""
                raise self._unfit(f"{type(observation).__name__}{hint}") from error
            if rows.ndim not in (1, 2) or rows.shape[-1] != self.observation_size:
                raise self._unfit(rows.shape)
        single = rows.ndim == 1
        return rows[np.newaxis] if single else rows, single

    def _unfit(self, got: object) -> ValueError:
        size = self.observation_size
        return ValueError(f"observation must have shape [{size}] or [N, {size}]; got {got}")

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
        executed_action: Any = None,
    ) -> Any:
        """Returns the next action.

        Args:
            observation: As for `Policy`; for N episodes, a batch of N observations.
            reward: The reward of the previous action, received with this observation; `[N]` for N
                episodes. Omit it for the first observation. It has no effect if the policy is not
                recurrent.
            ended: Mask `[N]` of the episodes that the previous action ended. For these, the
                observation is the first one of the next episode. After a single episode, call
                `start_episode` again instead.
            action_mask: As for `Policy`.
            executed_action: The action that was executed instead of the previous one, for example
                by a safety layer, in the format of the returned actions. None: the previous one.

        Returns:
            An action, or a batch of N actions, as returned by `Policy`.

        Raises:
            ValueError: If a shape is wrong, the policy is recurrent and the reward is missing, or
                `executed_action` is not an action.
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
            if executed_action is not None:
                try:
                    executed = policy._actions.from_environment(executed_action)
                except ValueError as error:
                    raise ValueError(f"executed_action must be an action: {error}") from error
                self._acted = executed[np.newaxis] if single else executed
            episodes.acted(self._acted, rewards, none if ended is None else np.asarray(ended, bool))
        elif not (reward is None and ended is None and executed_action is None):
            raise ValueError(
                "reward and ended must be omitted for the first observation, and so must "
                "executed_action"
            )
        self._acted = policy._actions.decided(finite_scores(episodes.act(rows), rows))
        return policy._to_environment(self._acted, single)

    def executed(self, actions: np.ndarray) -> None:
        """Replaces the last actions with those that were executed, such as noisy ones.

        A recurrent policy reads them at its next step.

        Args:
            actions: `[N, A]`, in [-1, 1] and one-hot.
        """
        self._acted = actions
