"""Flattens environments with arbitrary spaces to rows of numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from eagerly.environments.values import SpaceError, check_info
from eagerly.spaces.actions import Actions
from eagerly.spaces.observations import Observations


class FlatEnvironment(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Returns observations as rows that end with the action mask, and accepts rows as actions.

    Args:
        env: The environment.
        observations: Observation layout. With M > 0 mask columns, each row ends with the mask of
            valid actions, from "action_mask" in `info`. All actions are valid if that entry is
            None, or missing throughout the episode.
        actions: Action layout.

    Raises (from `reset` and `step`):
        SpaceError: If an observation or a mask does not fit its space, `info` is not a dictionary,
            a mask leaves no valid action, or only some steps of an episode have a mask. The mask of
            a terminating step is ignored.
    """

    def __init__(
        self, env: gymnasium.Env[Any, Any], observations: Observations, actions: Actions
    ) -> None:
        super().__init__(env)
        self._observations, self._actions = observations, actions
        self.observation_space = spaces.Box(-np.inf, np.inf, (observations.size,), np.float32)
        self.action_space = actions.row_space
        self._gives_masks = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Resets the environment."""
        observation, info = self.env.reset(seed=seed, options=options)
        check_info(info)
        self._gives_masks = "action_mask" in info
        return self._row(observation, info.get("action_mask")), info

    def step(self, action: np.ndarray) -> Any:
        """Steps the environment with an action row `[C + k]`: C numbers, then k choices."""
        observation, reward, terminated, truncated, info = self.env.step(
            self._actions.unflatten(np.asarray(action))
        )
        check_info(info)
        if self._observations.masked and not terminated:
            gives = "action_mask" in info
            if gives != self._gives_masks:
                raise SpaceError(
                    f"info contains {'an' if gives else 'no'} action_mask, but the info of reset "
                    f"contained {'none' if gives else 'one'}: always include it; None allows all"
                )
        row = self._row(observation, None if terminated else info.get("action_mask"))
        return row, reward, terminated, truncated, info

    def _row(self, observation: Any, given: Any) -> np.ndarray:
        if not self._observations.masked:
            given = None
        try:
            mask = None if given is None else self._actions.mask(given)
            return self._observations.flatten(observation, mask)
        except ValueError as error:
            raise SpaceError(str(error)) from error


def make_flat(
    make: Callable[[int], gymnasium.Env[Any, Any]],
    observations: Observations,
    actions: Actions,
    index: int,
) -> gymnasium.Env[Any, Any]:
    """Creates the environment with this index, flattened unless its spaces are rows already."""
    env = make(index)
    if observations.is_row and actions.is_row:
        return env
    return FlatEnvironment(env, observations, actions)
