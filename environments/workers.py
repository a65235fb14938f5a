"""Environments in processes of their own, which neither signals nor a dead trainer leave behind.

Workers are spawned, not forked: a fork would copy TensorFlow with its threads, and the trainer's
open files, locks included. They never import TensorFlow, nor the program that was started.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from typing import Any

import cloudpickle
import gymnasium
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from gymnasium.vector.async_vector_env import AsyncState, _async_worker
from gymnasium.vector.utils import CloudpickleWrapper
from threadpoolctl import threadpool_limits

from eagerly.errors import RunError
from eagerly.quiet import quiet_when_imported

_STOP = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
_SAFE_PATH = "PYTHONSAFEPATH"
_PATIENCE = 5.0  # seconds that closing environments may take
# Seconds that processes may take to start and import, besides what making the environments takes.
_STARTING = 120.0


@dataclass(frozen=True)
class _Member:
    """Makes an environment; in a worker it prepares the process first."""

    factory: Callable[[], gymnasium.Env[Any, Any]]
    look: Callable[[], gymnasium.Env[Any, Any]]
    trainer: int
    asked_for_safe_path: bool

    def __reduce__(self) -> Any:
        # Only the trainer looks, and it may be watched there.
        return _received, (cloudpickle.dumps(tuple((vars(self) | {"look": None}).values())),)

    def __call__(self) -> gymnasium.Env[Any, Any]:
        if os.getpid() == self.trainer:  # the vector environment looks at the spaces there
            return self.look()
        if not self.asked_for_safe_path:
            os.environ.pop(_SAFE_PATH, None)  # it was for this process alone
        for number in _STOP:
            # Ctrl-C reaches the whole process group; when to end is the trainer's decision. A
            # handler, unlike SIG_IGN, is not inherited by programs that an environment starts.
            signal.signal(number, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP)
        threading.Thread(target=_end_with_trainer, daemon=True).start()
        env = self.factory()
        threadpool_limits(1, user_api="blas")  # as in the trainer: the same bits
        return env


def _received(content: bytes) -> _Member:
    """Unpickles a member in its worker, where that may import TensorFlow, or later its steps."""
    if multiprocessing.parent_process() is not None:
        quiet_when_imported()
    return _Member(*cloudpickle.loads(content))


def _end_with_trainer() -> None:
    """Ends this process some time after the trainer's, whatever its environment is doing."""
    trainer = multiprocessing.parent_process()
    assert trainer is not None
    trainer.join()
    time.sleep(_PATIENCE)
    os._exit(1)


class _Told:
    """Takes a worker's exceptions as Gymnasium puts them, and hands on text.

    Their classes may be unknown to the trainer, or take other arguments than one text.
    """

    def __init__(self, queue: Any) -> None:
        self._queue = queue

    def put(self, failure: tuple[int, type[BaseException], BaseException, str]) -> None:
        index, kind, error, trace = failure
        what = str(error) if issubclass(kind, RunError) else f"environment {index} failed:\n{trace}"
        self._queue.put((index, what))


def _work(
    index: int, make: Any, pipe: Any, parent: Any, memory: Any, errors: Any, *more: Any
) -> None:
    """Serves a vector environment until it is told to close, or the trainer is no more."""
    told: Any = _Told(errors)
    try:
        try:
            env = make()
        except Exception as error:
            pipe.recv()  # whatever it asks, this is the answer
            told.put((index, type(error), error, traceback.format_exc()))
            pipe.send((None, False))
        else:
            _async_worker(index, lambda: env, pipe, parent, memory, told, *more)
    except (EOFError, ConnectionError):
        return  # nobody is left to be told


class WorkerEnvironments(AsyncVectorEnv):
    """Gymnasium's asynchronous vector environment, with workers that end when they should.

    Args:
        factories: Make one environment each; they are sent to the workers by value.
        look: Makes one here, to look at its spaces; None for the first of the factories.
        timeout: Seconds that a reset or a step may take, and making an environment once its
            process has started; 0 waits for ever.

    Raises:
        RunError: If a factory cannot be sent, fails there, or does not come back.
    """

    def __init__(
        self,
        factories: Sequence[Callable[[], gymnasium.Env[Any, Any]]],
        look: Callable[[], gymnasium.Env[Any, Any]] | None = None,
        *,
        timeout: float = 0.0,
    ) -> None:
        self._timeout = timeout
        asked = _SAFE_PATH in os.environ
        members = [
            _Member(factory, look or factories[0], os.getpid(), asked) for factory in factories
        ]
        # Processes would run the program that was started again, as `__mp_main__`, up to its main
        # guard, and with it whatever it imports: TensorFlow. What an environment needs of it is
        # sent by value instead. And Python would put the working directory first on their path,
        # before its own library, until it is told the path of this process.
        main = types.ModuleType("__main__")
        with _replaced(os.environ, _SAFE_PATH, "1"), _replaced(sys.modules, "__main__", main):
            with _signals_blocked():
                # Of these it ignores all but the hangup, which stays blocked in it. By itself,
                # because it lets the others through here as it starts.
                resource_tracker.ensure_running()
            with _signals_blocked():
                _check_sendable(members[0])
                try:
                    with _death_told(self):
                        super().__init__(
                            members,
                            copy=False,
                            context="spawn",
                            worker=_work,
                            autoreset_mode=AutoresetMode.DISABLED,
                        )
                except BaseException:
                    self.closed = True  # nothing is left to be closed
                    _kill(getattr(self, "processes", []))
                    raise
        # Workers do not react to SIGTERM, with which multiprocessing would end them at exit.
        self._at_exit = partial(_kill, self.processes)
        atexit.register(self._at_exit)

    def _check_spaces(self) -> None:
        """Checks them as Gymnasium does, once every environment is made.

        Gymnasium would wait for ever, which the watchdog of the trainer must not end: that of an
        environment is not the time that processes take to start, least of all on a busy machine.
        """
        timeout = self._timeout and _STARTING + self._timeout
        # A question that any environment answers at once.
        self._ask("call", timeout, "has_wrapper_attr", "step", done="been made")
        super()._check_spaces()  # type: ignore[no-untyped-call]

    def _raise_if_errors(self, successes: Iterable[bool]) -> None:
        failed = [ok for ok in successes if not ok]
        if not failed:
            return
        told = sorted(self.error_queue.get() for _ in failed)
        for index, _ in told:
            self.parent_pipes[index].close()
        self._state = AsyncState.DEFAULT
        raise RunError(told[0][1])

    def reset(self, **kwargs: Any) -> Any:
        """Resets as Gymnasium does; a worker that died or does not answer is named."""
        return self._ask("reset", self._timeout, **kwargs)

    def step(self, actions: Any) -> Any:
        """Steps as Gymnasium does; a worker that died or does not answer is named."""
        return self._ask("step", self._timeout, actions)

    def call(self, name: str, *args: Any, steps: int = 1, **kwargs: Any) -> Any:
        """Calls as Gymnasium does; a worker that died or does not answer is named.

        Args:
            name: The method.
            args: Its arguments.
            steps: How many steps it makes at most; each may take as long as any other.
            kwargs: Its keyword arguments.
        """
        return self._ask("call", self._timeout * max(steps, 1), name, *args, **kwargs)

    def _ask(
        self, what: str, timeout: float, *args: Any, done: str = "come back", **kwargs: Any
    ) -> Any:
        """Does what Gymnasium's method `what` does, but not for longer than the timeout."""
        with _death_told(self):
            getattr(self, f"{what}_async")(*args, **kwargs)
            try:
                return getattr(self, f"{what}_wait")(timeout=timeout or None)
            except multiprocessing.TimeoutError as error:
                silent = [i for i, pipe in enumerate(self.parent_pipes) if not pipe.poll(0)]
                _kill(self.processes)  # what they may still answer would be taken for another's
                raise RunError(
                    f"environments {silent} have not {done} for {timeout:g} seconds "
                    "(--environment-timeout-seconds)"
                ) from error

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Lets every worker close its environment; one that does not in time is killed."""
        patience = 0.0 if terminate else _PATIENCE if timeout is None else timeout
        pipes = [pipe for pipe in self.parent_pipes if not pipe.closed]
        for pipe in pipes:
            try:
                pipe.send(("close", None))
            except OSError:
                continue  # dead, or closed
        deadline = time.monotonic() + patience
        for process in self.processes:
            process.join(max(0.0, deadline - time.monotonic()))
        _kill(self.processes)
        for pipe in pipes:
            pipe.close()
        atexit.unregister(self._at_exit)


def _kill(processes: Sequence[BaseProcess]) -> None:
    started = [process for process in processes if process.pid is not None]
    for process in started:
        process.kill()
    for process in started:
        process.join()


def _check_sendable(member: _Member) -> None:
    try:
        CloudpickleWrapper(member).__getstate__()
    except Exception as error:  # whatever the objects say that it holds
        raise RunError(
            f"the environment cannot be sent to another process ({error}): let its factory make "
            "what cannot, or use --vectorization sync"
        ) from error


@contextmanager
def _death_told(envs: AsyncVectorEnv) -> Iterator[None]:
    try:
        yield
    except (EOFError, ConnectionError) as error:
        processes = list(getattr(envs, "processes", []))
        deadline = time.monotonic() + 1.0
        while all(p.is_alive() for p in processes) and time.monotonic() < deadline:
            time.sleep(0.01)  # the pipe may close a moment before the process has ended
        dead = [
            f"the process of environment {index} (exit code {process.exitcode}) has died"
            for index, process in enumerate(processes)
            if process.exitcode is not None
        ]
        raise RunError("; ".join(dead) or f"environments do not answer: {error!r}") from error


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Lets processes that are started meanwhile begin with the signals blocked.

    They let them through once they are prepared. Here other threads still receive them.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _replaced(mapping: MutableMapping[str, Any], key: str, value: Any) -> Iterator[None]:
    """Gives a key another value while entered."""
    before = mapping.get(key)
    mapping[key] = value
    try:
        yield
    finally:
        if before is None:
            del mapping[key]
        else:
            mapping[key] = before
