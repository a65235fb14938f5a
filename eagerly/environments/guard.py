"""Validates environment outputs at their source and names the environment in errors."""

from __future__ import annotations

import threading
import traceback
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np

from eagerly.environments.factory import recreate
from eagerly.environments.values import (
    SpaceError,
    as_array,
    check_info,
    check_reward,
    is_scalar,
    numeric_items,
    short,
)
from eagerly.environments.watchdog import Watchdog
from eagerly.errors import INTERRUPTIONS, RunError
from eagerly.spaces import Observations, text_of


class GuardedEnvironment(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Returns valid results of an environment unchanged and raises clear errors for invalid ones.

    Args:
        env: The environment.
        name: Name used in messages, such as "environment 3".
        watchdog: Monitors the calls; None disables monitoring.
        observations: Observation layout, if it is not the default for the space.

    Raises (from `reset` and `step`):
        RunError: If the environment raises an error or its spaces change; if an observation has the
            wrong shape or a dtype that cannot be cast safely, a reward is not a number in float
            range, `terminated` or `truncated` is not a boolean, or `info` is not a dictionary; or
            if, at the end of an episode, a number in `info` exceeds float range or its key is not
            Unicode text.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        name: str,
        watchdog: Watchdog | None = None,
        observations: Observations | None = None,
    ) -> None:
        super().__init__(env)
        self._name, self._watchdog = name, watchdog
        self._spaces = env.observation_space, env.action_space
        space = env.observation_space
        # Observations in a Box are checked without a layout, which saves time at every step.
        is_box = isinstance(space, gymnasium.spaces.Box)
        self._parts = None if is_box else observations or Observations(space)
        self._shape, self._dtype = space.shape, np.dtype(space.dtype)
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Resets the environment."""
        self._steps = 0
        return self._call("reset", self.env.reset, self._check_reset, seed=seed, options=options)

    def step(self, action: Any) -> Any:
        """Steps the environment."""
        self._steps += 1
        # Actions are recorded for replay, and an environment may modify the array that it receives.
        given = action.copy() if isinstance(action, np.ndarray) else action
        if self._watchdog is not None:
            self._watchdog.call = self._name, "step", 1, threading.get_ident()
        try:
            result = self.env.step(given)
            if type(result) is not tuple or len(result) != 5:
                self._check_step(result)
            observation, reward, terminated, truncated, info = result
            if not (
                type(observation) is np.ndarray
                and observation.shape == self._shape
                and observation.dtype == self._dtype
                and isinstance(reward, float)
                and isinstance(terminated, bool)
                and isinstance(truncated, bool)
                and isinstance(info, dict)
                and not (terminated or truncated)
            ):  # slow path, for unusual types and ends of episodes
                self._check_step(result)
            return result
        except BaseException as error:
            self._refuse("step", error)
            raise
        finally:
            if self._watchdog is not None:
                self._watchdog.call = None

    def recreate(self, kwargs: Mapping[str, Any]) -> None:
        """Closes the environment and creates it with additional keyword arguments.

        Raises:
            RunError: If the new environment cannot be created or has other spaces.
        """
        self._steps = 0
        self.close()  # an error in it becomes a warning
        self._call("creation", recreate, lambda _: None, self.env, kwargs)

    def _call(
        self,
        what: str,
        call: Callable[..., Any],
        check: Callable[[Any], None] = lambda _: None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        if self._watchdog is not None:
            self._watchdog.call = self._name, what, 1, threading.get_ident()
        try:
            result = call(*args, **kwargs)
            check(result)
            return result
        except BaseException as error:
            self._refuse(what, error)
            raise
        finally:
            if self._watchdog is not None:
                self._watchdog.call = None

    def _refuse(self, what: str, error: BaseException) -> None:
        """Converts an error to a `RunError`, or returns if the caller should reraise it as is."""
        if isinstance(error, SpaceError):
            raise self._wrong(str(error)) from error
        if not isinstance(error, (RunError, *INTERRUPTIONS)):
            told = traceback.format_exc().rstrip()
            raise self._wrong(f"{what} failed:\n{told}\n") from error

    def close(self) -> None:
        """Closes the environment. Errors become warnings and do not fail a finished run.

        If it hangs, the watchdog ends the process.
        """
        try:
            self._call("close", self.env.close)
        except RunError as error:
            warnings.warn(str(error), stacklevel=2)

    def _check_reset(self, result: Any) -> None:
        if not (isinstance(result, tuple) and len(result) == 2):
            raise SpaceError(f"reset must return (observation, info); got {short(result)}")
        observation, info = result
        self._check_observation(observation)
        check_info(info)
        spaces = self.env.observation_space, self.env.action_space
        if spaces != self._spaces:
            was, became = (tuple(map(text_of, each)) for each in (self._spaces, spaces))
            raise SpaceError(f"spaces must stay {was}; got {became}")

    def _check_step(self, result: Any) -> None:
        if not (isinstance(result, tuple) and len(result) == 5):
            raise SpaceError(
                "step must return (observation, reward, terminated, truncated, info); got "
                f"{short(result)}"
            )
        observation, reward, terminated, truncated, info = result
        self._check_observation(observation)
        check_reward(reward)
        for name, value in (("terminated", terminated), ("truncated", truncated)):
            if not isinstance(value, bool | np.bool_) and not is_scalar(value, "b"):
                raise SpaceError(f"{name} must be True or False; got {short(value)}")
        check_info(info)
        if terminated or truncated:
            numeric_items(info)  # raises for numbers that cannot be logged

    def _check_observation(self, observation: Any) -> None:
        if self._parts is not None:
            try:
                self._parts.flatten(observation)
            except ValueError as error:
                raise SpaceError(str(error)) from error
            return
        array = as_array(observation)
        if array.shape != self._shape:
            raise SpaceError(f"observation must have shape {self._shape}; got {array.shape}")
        if array.dtype != self._dtype and not np.can_cast(array.dtype, self._dtype, "same_kind"):
            raise SpaceError(f"observation must have dtype {self._dtype}; got {array.dtype}")

    def _wrong(self, what: str) -> RunError:
        return RunError(f"{self._name}, step {self._steps} of its episode: {what}")


def close_with_warning(env: gymnasium.Env[Any, Any], name: str) -> None:
    """Closes an unguarded environment; errors become warnings."""
    try:
        env.close()
    except INTERRUPTIONS:
        raise
    except BaseException:  # a user's environment may raise anything
        warnings.warn(f"{name}: close failed:\n{traceback.format_exc()}", stacklevel=2)
