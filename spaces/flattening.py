"""An environment of any space as one of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from eagerly.spaces.actions import Actions
from eagerly.spaces.observations import Observations


class SpaceError(ValueError):
    """What an environment handed over is not in its space, or its mask allows nothing."""


class FlatEnvironment(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Gives observations as rows, with the mask of `info` behind them, and takes rows as actions.

    Args:
        env: The environment.
        observations: How its observations are laid out; with M > 0 masked columns each of them
            says which actions are valid, all of them where `info` holds no "action_mask".
        actions: How its actions are.

    Raises (from `reset` and `step`):
        SpaceError: If an observation or a mask does not fit its space, or a mask leaves no valid
            action; that of a terminated episode may.
    """

    def __init__(
        self, env: gymnasium.Env[Any, Any], observations: Observations, actions: Actions
    ) -> None:
        super().__init__(env)
        self._observations, self._actions = observations, actions
        self.observation_space = spaces.Box(-np.inf, np.inf, (observations.size,), np.float32)
        self.action_space = actions.row_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Resets the environment."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self._row(observation, info), info

    def step(self, action: np.ndarray) -> Any:
        """Steps the environment with a row `[C + k]`."""
        observation, reward, terminated, truncated, info = self.env.step(
            self._actions.unflatten(np.asarray(action))
        )
        row = self._row(observation, {} if terminated else info)
        return row, reward, terminated, truncated, info

    def _row(self, observation: Any, info: dict[str, Any]) -> np.ndarray:
        given = info.get("action_mask") if self._observations.masked else None
        try:
            mask = None if given is None else self._actions.mask(given)
            return self._observations.flatten(observation, mask)
        except ValueError as error:
            raise SpaceError(str(error)) from error


def make_flat(
    make: Callable[[], gymnasium.Env[Any, Any]], observations: Observations, actions: Actions
) -> gymnasium.Env[Any, Any]:
    """Makes an environment of rows: as `make` makes it, if that is one already."""
    env = make()
    if observations.is_row and actions.is_row:
        return env
    return FlatEnvironment(env, observations, actions)
