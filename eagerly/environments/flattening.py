"""An environment of any space as one of rows."""

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
    """Gives observations as rows, with the mask of `info` behind them, and takes rows as actions.

    Args:
        env: The environment.
        observations: How its observations are laid out; with M > 0 masked columns each of them
            says which actions are valid: all of them where "action_mask" in `info` is None, or
            where no `info` holds one.
        actions: How its actions are.

    Raises (from `reset` and `step`):
        SpaceError: If an observation or a mask does not fit its space, `info` is not a dictionary,
            a mask leaves no valid action, or some `info` of an episode holds a mask and some do
            not; that of a step that terminates may be anything.
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
        """Steps the environment with a row `[C + k]`."""
        observation, reward, terminated, truncated, info = self.env.step(
            self._actions.unflatten(np.asarray(action))
        )
        check_info(info)
        if self._observations.masked and not terminated:
            gives = "action_mask" in info
            if gives != self._gives_masks:
                raise SpaceError(
                    f"info holds {'an' if gives else 'no'} action_mask, but that of reset "
                    f"{'none' if gives else 'one'}: give it always, None where everything is valid"
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
    make: Callable[[], gymnasium.Env[Any, Any]], observations: Observations, actions: Actions
) -> gymnasium.Env[Any, Any]:
    """Makes an environment of rows: as `make` makes it, if that is one already."""
    env = make()
    if observations.is_row and actions.is_row:
        return env
    return FlatEnvironment(env, observations, actions)
