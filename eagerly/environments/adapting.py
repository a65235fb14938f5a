"""Adapts environments that implement Gymnasium's interface only partially."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator
from typing import Any

import gymnasium
from gymnasium.wrappers import ClipAction

_log = logging.getLogger(__name__)


class ClippedActions(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Replaces the infinite action bounds that `ClipAction` declares with the ones it clips to."""

    def __init__(self, env: gymnasium.Env[Any, Any], space: gymnasium.Space[Any]) -> None:
        super().__init__(env)
        self.action_space = space


class PartialReset(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Supports environments whose `reset` does not accept `seed` or `options`.

    If `reset` does not accept a seed, the wrapper seeds the environment's `np_random` itself, as
    `Env.reset` does.

    Attributes:
        takes_seed: Whether the environment's `reset` accepts a seed.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], taken: set[str]) -> None:
        super().__init__(env)
        self._taken, self.takes_seed = taken, "seed" in taken

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Resets the environment with the arguments that it accepts."""
        if not self.takes_seed:
            gymnasium.Env.reset(self.env.unwrapped, seed=seed)
        given: dict[str, Any] = {"seed": seed, "options": options}
        return self.env.reset(**{name: given[name] for name in self._taken})


def adapted(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """Wraps an environment so that it accepts seed and options and declares its clipping bounds."""
    env = _with_full_reset(env)
    space = _clipped_to(env)
    return env if space is None else ClippedActions(env, space)


def layers(env: gymnasium.Env[Any, Any]) -> Iterator[gymnasium.Env[Any, Any]]:
    """Yields an environment and everything it wraps, outermost first."""
    yield env
    while isinstance(env, gymnasium.Wrapper):
        env = env.env
        yield env


def takes_seed(env: gymnasium.Env[Any, Any]) -> bool:
    """Returns whether `reset` accepts a seed at every layer of an adapted environment."""
    return not any(isinstance(each, PartialReset) and not each.takes_seed for each in layers(env))


def warn_if_unseeded(env: gymnasium.Env[Any, Any], name: str) -> None:
    """Logs a warning if `reset` of an adapted environment does not accept a seed.

    Args:
        env: The environment; none of its methods are called.
        name: Name used in messages.
    """
    if not takes_seed(env):
        _log.warning(
            f"environment {name!r}: reset takes no seed and is called without one; only random "
            "numbers from self.np_random depend on the run's seed. Define "
            "reset(self, *, seed=None, options=None) and call super().reset(seed=seed) first"
        )


def _with_full_reset(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    if isinstance(env, gymnasium.Wrapper):
        inner = _with_full_reset(env.env)
        if inner is not env.env:
            env.env = inner
    try:
        parameters = inspect.signature(env.reset).parameters
    except (TypeError, ValueError):  # compiled code may have no signature
        return env
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        return env
    taken = {"seed", "options"} & parameters.keys()
    return env if len(taken) == 2 else PartialReset(env, taken)


def _clipped_to(env: gymnasium.Env[Any, Any]) -> gymnasium.Space[Any] | None:
    """Returns the space to which a `ClipAction` clips, or None if it cannot be determined."""
    if isinstance(env, ClipAction):
        inner = _clipped_to(env.env)
        return env.env.action_space if inner is None else inner
    if isinstance(env, gymnasium.ActionWrapper):  # how it maps actions is unknown
        return None
    # A wrapper that does not override the action space returns the wrapped environment's object.
    if isinstance(env, gymnasium.Wrapper) and env.action_space is env.env.action_space:
        return _clipped_to(env.env)
    return None
