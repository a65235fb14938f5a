"""Runs one environment in a separate process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium

from eagerly.environments.guard import close_with_warning
from eagerly.environments.silence import Silence
from eagerly.environments.values import EXECUTED, check_info
from eagerly.environments.worker_process import LostError, WorkerProcess, message_of, sendable
from eagerly.errors import RunError

STARTING = 120.0  # seconds allowed for a process to start, before it creates an environment


class _RemoteTraceback:
    """The environment in the separate process. Returns only what policies read of `info`."""

    def __init__(self, make: Callable[[], gymnasium.Env[Any, Any]]) -> None:
        self._env = make()

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> Any:
        observation, info = self._env.reset(seed=seed, options=options)
        return observation, _read(info)

    def step(self, action: Any) -> Any:
        *result, info = self._env.step(action)
        return *result, _read(info)

    def call(self, name: str, *args: Any) -> Any:
        return self._env.get_wrapper_attr(name)(*args)

    def close(self) -> None:
        self._env.close()


def _read(info: Any) -> dict[str, Any]:
    check_info(info)
    return {key: value for key, value in info.items() if key in ("action_mask", EXECUTED)}


class RemoteEnvironment(gymnasium.Env[Any, Any]):
    """An environment in a separate process.

    Args:
        factory: Creates the environment in the separate process; sent by value.
        look: Creates an environment in this process, which is closed once its spaces are known.
        timeout: Seconds allowed per call; 0: unlimited.

    Raises:
        RunError: If the factory cannot be sent or the environment cannot be created. Also raised by
            the methods if the environment fails, its process dies or a call times out.
    """

    def __init__(
        self,
        factory: Callable[[], gymnasium.Env[Any, Any]],
        look: Callable[[], gymnasium.Env[Any, Any]],
        *,
        timeout: float = 0.0,
    ) -> None:
        self._timeout = timeout
        seen = look()
        self.observation_space, self.action_space = seen.observation_space, seen.action_space
        self.metadata = seen.metadata
        close_with_warning(seen, "the environment")
        content = sendable(partial(_RemoteTraceback, factory), "or disable videos")
        self._worker = WorkerProcess(content, "the environment process", Silence(timeout))
        try:
            self._ask("call", "has_wrapper_attr", "step", timeout=timeout and STARTING + timeout)
        except RunError:
            self.close()
            raise

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Resets the environment; `info` contains only the entries that policies read."""
        return self._ask("reset", seed, options)

    def step(self, action: Any) -> Any:
        """Steps the environment; `info` contains only the entries that policies read."""
        return self._ask("step", action)

    def call(self, name: str, *args: Any) -> Any:
        """Calls a method of the environment or one of its wrappers."""
        return self._ask("call", name, *args)

    def _ask(self, method: str, *args: Any, timeout: float | None = None) -> Any:
        timeout = self._timeout if timeout is None else timeout
        try:
            self._worker.send(message_of(method, *args))
            return self._worker.receive(timeout)
        except LostError as error:
            raise RunError(str(error)) from error
        except TimeoutError as error:
            raise RunError(
                f"the environment timed out after {timeout:g} seconds "
                "(--environment-timeout-seconds)"
            ) from error

    def close(self) -> None:
        """Closes the environment and ends its process."""
        self._worker.close()
