"""Policies as a user calls them: from an observation to an action in the environment's units."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerly.policies.behavior import finite_scores
from eagerly.policies.episodes import EpisodePolicy, Episodes
from eagerly.policies.numpy_actor import RowPolicy
from eagerly.spaces import Actions, Observations


class Policy:
    """A deterministic policy: a function of the observation, or with a memory of the episode.

    Where the actor is a built-in one it needs NumPy alone: it can be called from several threads at
    once, each with episodes of its own, and be pickled and copied. Where it is a model of your own,
    TensorFlow is called: from one thread at a time, and in this process.

    Args:
        actor: Maps rows of observations `[N, O]` to scores `[N, A]`, or steps through episodes.
        observations: Lays observations out as rows.
        actions: Makes actions of scores.
        steps: Environment steps that it was trained for.
        which: Which policy of its run it is.

    Attributes:
        actor: What it was made of; of a built-in actor a `NumpyActor` or `NumpyMemoryActor`.
        observation_space, action_space: Those of the environment.
        observation_size: O.
        action_size: A.
        steps: Environment steps that it was trained for.
        which: "best" or "latest".
        remembers: Whether it has a memory: then it acts in episodes, see `begin_episodes`.
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
        """Chooses an action, or one for each row of a batch.

        The last bits of a row's action can depend on whether it came alone or in a batch.

        Args:
            observation: As the environment gives it, `[O]` of a flat `Box`; or N of them, each
                part with an axis N in front.
            action_mask: Of discrete actions, which are valid, as `info["action_mask"]` says it;
                of N observations N of them. None: all are.

        Returns:
            What the environment takes: of a `Box` `[A]` in its units, within its bounds, of its
            dtype. For N observations N of them, each part with an axis N in front.

        Raises:
            ValueError: If the observation or the mask is of another space, or the policy remembers.
            FloatingPointError: If the action would be NaN, because the observation is.
        """
        if self.remembers:
            raise ValueError(
                "this policy has a memory: begin an episode with act = policy.begin_episodes(), "
                "then call act(observation), and act(observation, reward) after each step"
            )
        rows, single = self._rows(observation, action_mask)
        return self._made(self._actions.decided(finite_scores(self.actor(rows), rows)), single)

    def begin_episodes(self, count: int | None = None) -> PlayedEpisodes:
        """Begins an episode, or N side by side; what is returned acts in them, step by step.

        Without a memory it does what the policy itself does.

        Args:
            count: N; None for one episode, whose observations come without an axis N.
        """
        return PlayedEpisodes(self, count)

    def parts(self, observation: Any) -> list[Any]:
        """Returns the parts of an observation that it reads: all but what training left out.

        Raises:
            ValueError: If one is missing.
        """
        return list(self._observations.parts(observation))

    def _rows(self, observation: Any, action_mask: Any) -> tuple[np.ndarray, bool]:
        if not self._observations.is_row:
            if action_mask is not None and not self._observations.masked:
                action_mask = None  # trained not to obey it
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

    def _made(self, actions: np.ndarray, single: bool) -> Any:
        """Makes what the environment takes of actions `[N, A]`."""
        rows = self._actions.to_environment(actions)
        return self._actions.unflatten(rows[0] if single else rows)

    def __repr__(self) -> str:
        sizes = f"observation_size={self.observation_size}, action_size={self.action_size}"
        return f"Policy({sizes}, steps={self.steps}, which={self.which!r})"


class PlayedEpisodes:
    """Acts in one episode, or in N side by side, from what it has seen of them.

    `Policy.begin_episodes` makes it.

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
        """Chooses the next action.

        Args:
            observation: As `Policy` takes it; N of them where N episodes were begun.
            reward: What came with it, of the action before; `[N]` for N episodes. Not at the first
                observation; without a memory it makes no difference.
            ended: Which of N episodes ended before this observation, `[N]` bool: it is the first
                of another one there. One episode that ends is begun anew by `begin_episodes`.
            action_mask: As `Policy` takes it.

        Returns:
            What `Policy` returns.

        Raises:
            ValueError: If a shape is wrong, or a memory lacks the reward.
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
                    "reward is missing: a policy with a memory is told what came of its last action"
                )
            rewards = np.broadcast_to(np.asarray(reward, np.float32), (len(rows),))
            none = np.zeros(len(rows), bool)
            episodes.acted(self._acted, rewards, none if ended is None else np.asarray(ended, bool))
        elif reward is not None or ended is not None:
            raise ValueError("reward and ended belong to observations after the first one")
        self._acted = policy._actions.decided(finite_scores(episodes.act(rows), rows))
        return policy._made(self._acted, single)
