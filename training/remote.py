"""One environment in a process of its own, where it cannot be in this one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from eagerly.training.workers import WorkerEnvironments


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
        self._envs = WorkerEnvironments([factory], look, timeout=timeout)
        self.metadata = self._envs.metadata
        self.observation_space = self._envs.single_observation_space
        self.action_space = self._envs.single_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Resets it; `info` stays there."""
        observations, _ = self._envs.reset(seed=seed, options=options)
        return observations[0].copy(), {}

    def step(self, action: Any) -> Any:
        """Steps it; `info` stays there."""
        observations, rewards, terminated, truncated, _ = self._envs.step(action[np.newaxis])
        ended = bool(terminated[0]), bool(truncated[0])
        return observations[0].copy(), float(rewards[0]), *ended, {}

    def call(self, name: str) -> Any:
        """Calls a method of it, or of one of its wrappers."""
        return self._envs.call(name)[0]

    def close(self) -> None:
        """Closes it and ends the process."""
        self._envs.close()
