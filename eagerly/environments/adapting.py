"""Adapts environments that implement Gymnasium's interface only in part."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator
from typing import Any

import gymnasium
from gymnasium.wrappers import ClipAction

_log = logging.getLogger(__name__)


class ClippedActions(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Declares the bounds that `ClipAction` clips to, in place of its infinite ones."""

    def __init__(self, env: gymnasium.Env[Any, Any], space: gymnasium.Space[Any]) -> None:
        super().__init__(env)
        self.action_space = space


class PartialReset(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Resets an environment whose `reset` takes no seed or no options without them.

    A seed reaches `self.np_random` of the environment all the same, as `Env.reset` does it.

    Attributes:
        takes_seed: Whether `reset` takes one.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], taken: set[str]) -> None:
        super().__init__(env)
        self._taken, self.takes_seed = taken, "seed" in taken

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Resets the environment with what it takes."""
        if not self.takes_seed:
            gymnasium.Env.reset(self.env.unwrapped, seed=seed)
        given: dict[str, Any] = {"seed": seed, "options": options}
        return self.env.reset(**{name: given[name] for name in self._taken})


def adapted(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """Returns an environment that takes seed and options, and has the bounds it clips to."""
    env = _with_full_reset(env)
    space = _clipped_to(env)
    return env if space is None else ClippedActions(env, space)


def layers(env: gymnasium.Env[Any, Any]) -> Iterator[gymnasium.Env[Any, Any]]:
    """Yields an environment and what it wraps, from the outside to the inside."""
    yield env
    while isinstance(env, gymnasium.Wrapper):
        env = env.env
        yield env


def takes_seed(env: gymnasium.Env[Any, Any]) -> bool:
    """Whether `reset` of an adapted environment, and of all that it wraps, takes a seed."""
    return not any(isinstance(each, PartialReset) and not each.takes_seed for each in layers(env))


def warn_if_unseeded(env: gymnasium.Env[Any, Any], name: str) -> None:
    """Logs a warning if `reset` of an adapted environment takes no seed.

    Args:
        env: The environment; nothing of it is called.
        name: Its name in messages.
    """
    if not takes_seed(env):
        _log.warning(
            f"environment {name!r}: reset takes no seed. It is called without one; only what it "
            "draws from self.np_random follows the seed of the run. Better: "
            "def reset(self, *, seed=None, options=None), beginning with super().reset(seed=seed)"
        )


def _with_full_reset(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    if isinstance(env, gymnasium.Wrapper):
        inner = _with_full_reset(env.env)
        if inner is not env.env:
            env.env = inner
    try:
        parameters = inspect.signature(env.reset).parameters
    except (TypeError, ValueError):  # compiled code does not tell
        return env
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        return env
    taken = {"seed", "options"} & parameters.keys()
    return env if len(taken) == 2 else PartialReset(env, taken)


def _clipped_to(env: gymnasium.Env[Any, Any]) -> gymnasium.Space[Any] | None:
    """Finds the space that a `ClipAction` clips actions to; None if there is none to be known."""
    if isinstance(env, ClipAction):
        inner = _clipped_to(env.env)
        return env.env.action_space if inner is None else inner
    if isinstance(env, gymnasium.ActionWrapper):  # what it makes of an action is not known
        return None
    # A wrapper without a space of its own hands on the object of what it wraps.
    if isinstance(env, gymnasium.Wrapper) and env.action_space is env.env.action_space:
        return _clipped_to(env.env)
    return None
