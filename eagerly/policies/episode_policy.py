"""Recurrent policies, with a recurrent state for each episode in progress."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from eagerly.state import Saved


@runtime_checkable
class EpisodePolicy(Protocol):
    """A recurrent policy, which receives its current state and returns the next one.

    Attributes:
        action_size: A, the length of an action.
    """

    action_size: int

    def initial_state(self, count: int) -> list[np.ndarray]:
        """Returns the initial state of N episodes, which is all zeros."""

    def step(
        self,
        observations: np.ndarray,
        previous_actions: np.ndarray,
        previous_rewards: np.ndarray,
        state: list[np.ndarray],
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """Computes scores and the next state.

        Args:
            observations: `[N, O]`.
            previous_actions: `[N, A]` in [-1, 1], the actions before these observations; 0 at the
                start of an episode.
            previous_rewards: `[N]`, the rewards of these actions; 0 at the start of an episode.
            state: The state returned by `initial_state` or the previous step.

        Returns:
            Scores `[N, A]`, see `ActionHead`, and the next state.
        """


class Episodes(Saved):
    """The recurrent states of N episodes in progress.

    Call `act` and `acted` alternately: `act` with the observations, `acted` with the executed
    actions and their rewards.

    Args:
        policy: The recurrent policy.
        count: N.
    """

    _saved = ("_actions", "_rewards", "_state")

    def __init__(self, policy: EpisodePolicy, count: int) -> None:
        self._policy, self._count = policy, count
        self._state = policy.initial_state(count)
        self._actions = np.zeros((count, policy.action_size), np.float32)
        self._rewards = np.zeros(count, np.float32)
        self._waits = False  # whether `acted` must be called next

    def __len__(self) -> int:
        return self._count

    def act(self, observations: np.ndarray) -> np.ndarray:
        """Processes observations `[N, O]` and returns scores `[N, A]`, see `ActionHead`.

        Raises:
            ValueError: If `acted` was not called after the previous observations.
        """
        if self._waits:
            raise ValueError(
                "act was called twice in a row: after each act, call acted(actions, rewards, ended)"
            )
        actions, self._state = self._policy.step(
            observations, self._actions, self._rewards, self._state
        )
        self._waits = True
        return actions

    def acted(self, actions: np.ndarray, rewards: np.ndarray, ended: np.ndarray) -> None:
        """Records executed actions and their rewards, and resets episodes that ended.

        Args:
            actions: `[N, A]` in [-1, 1].
            rewards: `[N]`.
            ended: `[N]` bool.

        Raises:
            ValueError: If `act` was not called before, or a shape is wrong. Nothing is recorded in
                this case.
        """
        if not self._waits:
            raise ValueError("acted was called before act: call act(observations) first")
        shapes = [self._actions.shape, (self._count,), (self._count,)]
        given = [np.shape(part) for part in (actions, rewards, ended)]
        if given != shapes:
            raise ValueError(f"actions, rewards and ended must have shapes {shapes}; got {given}")
        self._actions = np.array(actions, np.float32)
        self._rewards = np.array(rewards, np.float32)
        self._waits = False
        self.begin(ended)

    def begin(self, began: np.ndarray) -> None:
        """Resets the state, previous action and reward of the episodes in a mask, `[N]` bool."""
        began = np.asarray(began, bool)
        if began.any():
            for part in (self._actions, self._rewards, *self._state):
                part[began] = 0
