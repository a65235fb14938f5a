"""What an environment hands over, checked where it comes from; what it raises, told by name."""

from __future__ import annotations

import numbers
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from eagerly.environments.flattening import SpaceError
from eagerly.environments.watchdog import Watchdog
from eagerly.errors import RunError
from eagerly.spaces import Observations, text_of


class GuardedEnvironment(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Passes on what fits the environment's spaces, and says clearly what does not.

    Args:
        env: The environment.
        name: What it is called in messages, such as "environment 3".
        watchdog: Watches its calls, if it is in the process of the trainer.
        observations: How its observations are laid out, where that is more than its space says.

    Raises (from `reset` and `step`):
        RunError: If the environment raises something; if an observation has another shape than its
            space or a dtype that would lose its meaning there, a reward is not a number, an end
            not a truth value; or if its spaces have changed.
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
        # A Box is looked at here, more quickly, because that is done at every step.
        is_box = isinstance(space, gymnasium.spaces.Box)
        self._parts = None if is_box else observations or Observations(space)
        self._shape, self._dtype = space.shape, np.dtype(space.dtype)
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Resets the environment."""
        self._steps = 0
        result = self._call("reset", self.env.reset, seed=seed, options=options)
        if not (isinstance(result, tuple) and len(result) == 2):
            raise self._wrong(f"reset must return (observation, info); got {_short(result)}")
        self._check_observation(result[0])
        spaces = self.env.observation_space, self.env.action_space
        if spaces != self._spaces:
            was, became = (tuple(map(text_of, each)) for each in (self._spaces, spaces))
            raise self._wrong(f"its spaces must stay {was}; they became {became}")
        return result

    def step(self, action: Any) -> Any:
        """Steps the environment."""
        self._steps += 1
        result = self._call("step", self.env.step, action)
        if not (isinstance(result, tuple) and len(result) == 5):
            raise self._wrong(
                "step must return (observation, reward, terminated, truncated, info); got "
                f"{_short(result)}"
            )
        observation, reward, terminated, truncated, _ = result
        self._check_observation(observation)
        if not isinstance(reward, numbers.Real) and not _is_scalar(reward, "biuf"):
            raise self._wrong(f"reward must be a number; got {_short(reward)}")
        for name, value in (("terminated", terminated), ("truncated", truncated)):
            if not isinstance(value, bool | np.bool_) and not _is_scalar(value, "b"):
                raise self._wrong(f"{name} must be True or False; got {_short(value)}")
        return result

    def _call(self, what: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._watchdog:
            self._watchdog.begin(f"{self._name}, in {what},")
        try:
            return call(*args, **kwargs)
        except RunError:
            raise
        except SpaceError as error:
            raise self._wrong(str(error)) from error
        except (Exception, SystemExit) as error:  # whatever a user's environment raises
            raise self._wrong(f"{what} failed:\n{traceback.format_exc().rstrip()}\n") from error
        finally:
            if self._watchdog:
                self._watchdog.end()

    def close(self) -> None:
        """Closes the environment; what fails in it is told, and ends no run that is done."""
        try:
            self._call("close", self.env.close)
        except RunError as error:
            warnings.warn(str(error), stacklevel=2)

    def _check_observation(self, observation: Any) -> None:
        if self._parts is not None:
            try:
                self._parts.flatten(observation)
            except ValueError as error:
                raise self._wrong(str(error)) from error
            return
        array = _array(observation)
        if array.shape != self._shape:
            raise self._wrong(f"observation must have shape {self._shape}; got {array.shape}")
        if array.dtype != self._dtype and not np.can_cast(array.dtype, self._dtype, "same_kind"):
            raise self._wrong(f"observation must be of dtype {self._dtype}; got {array.dtype}")

    def _wrong(self, what: str) -> RunError:
        return RunError(f"{self._name}, step {self._steps} of its episode: {what}")


def _is_scalar(value: Any, kinds: str) -> bool:
    """Whether an array, of NumPy or another library, has no axes and one of NumPy's kinds."""
    array = _array(value)
    return array.ndim == 0 and array.dtype.kind in kinds


def _array(value: Any) -> np.ndarray:
    try:
        return np.asarray(value)
    except ValueError:  # lists of different lengths
        return np.array([value, None], dtype=object)[:1]


def _short(value: Any) -> str:
    shape = f" of shape {np.shape(value)}" if isinstance(value, np.ndarray) else ""
    text = repr(value)
    return (text if len(text) <= 100 else text[:100] + "...") + shape
