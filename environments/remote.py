"""One environment in a process of its own, where it cannot be in this one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium

from eagerly.environments.workers import WorkerEnvironments


class _Telling(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose observations and actions, of any space, are sent as they are.

    Of `info` the mask of the next action goes along. Its observations go nowhere else, least of all
    into shared memory, which holds no space that Gymnasium does not know: it claims a trivial one.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Discrete(1)

    def begin(self, seed: int | None, options: dict[str, Any] | None) -> Any:
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, _mask_in(info)

    def play(self, action: Any) -> Any:
        *result, info = self.env.step(action)
        return *result, _mask_in(info)


def _mask_in(info: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in info.items() if key == "action_mask"}


class RemoteEnvironment(gymnasium.Env[Any, Any]):
    """One environment in a process of its own.

    Args:
        factory: Makes it; sent there by value.
        look: Makes one here, to look at its spaces.
    """

    def __init__(
        self,
        factory: Callable[[], gymnasium.Env[Any, Any]],
        look: Callable[[], gymnasium.Env[Any, Any]],
        *,
        timeout: float = 0.0,
    ) -> None:
        def looked() -> _Telling:
            env = look()
            self.observation_space = env.observation_space
            return _Telling(env)

        self._envs = WorkerEnvironments([lambda: _Telling(factory())], looked, timeout=timeout)
        self.metadata = self._envs.metadata
        self.action_space = self._envs.single_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Resets it; of `info` the mask comes back."""
        return self.call("begin", seed, options)

    def step(self, action: Any) -> Any:
        """Steps it; of `info` the mask comes back."""
        return self.call("play", action)

    def call(self, name: str, *args: Any) -> Any:
        """Calls a method of it, or of one of its wrappers."""
        return self._envs.call(name, *args)[0]

    def close(self) -> None:
        """Closes it and ends the process."""
        self._envs.close()
