"""Objects in child processes. The processes never outlive the trainer, even if it is killed.

Processes are spawned, not forked: a fork would copy TensorFlow with its threads, and the trainer's
open files, including locks. The processes import neither TensorFlow nor the main program.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
from threadpoolctl import threadpool_limits

from eagerly.environments.silence import TICK, Silence, give_signs
from eagerly.errors import RunError
from eagerly.reaper import reaper

_STOP = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
_SAFE_PATH = "PYTHONSAFEPATH"
_PATIENCE = 5.0  # seconds allowed for closing an object
_CLOSE = pickle.dumps(None)
# Errors that keep their class in the calling process. Other errors become a `RunError` with the
# traceback.
_TOLD: tuple[type[Exception], ...] = (RunError, FloatingPointError)


class LostError(Exception):
    """A remote object does not answer, because it or its process no longer exists."""


class WorkerLoop:
    """Creates an object and calls its methods in response to messages.

    Errors are sent as text in an answer, because the caller may not be able to import their class.

    Args:
        content: The object's factory, serialized with cloudpickle.
    """

    def __init__(self, content: bytes) -> None:
        self._content: bytes | None = content
        self._made: Any = None

    def answer(self, message: bytes, *more: Any) -> bytes:
        """Calls the method named in a message and returns the answer.

        Arguments are those in the message, followed by `more`. The first message also creates the
        object.
        """
        try:
            method, arguments = pickle.loads(message)
            if self._content is not None:
                content, self._content = self._content, None
                self._made = _unpickled(content)()
                threadpool_limits(1, user_api="blas")  # as in the trainer, for identical results
            found = getattr(self._made, method)(*arguments, *more)
            return pickle.dumps((None, found), pickle.HIGHEST_PROTOCOL)
        except _TOLD as error:
            kind = FloatingPointError if isinstance(error, FloatingPointError) else RunError
            return failure(str(error), kind)
        except BaseException:  # such as SystemExit, or a panic in a Rust simulator
            return failure(f"a worker process failed:\n{traceback.format_exc()}")

    def close(self) -> None:
        """Closes the object."""
        if self._made is not None:
            self._made.close()


def _unpickled(content: bytes) -> Callable[[], Any]:
    try:
        make: Callable[[], Any] = cloudpickle.loads(content)
    except ImportError as error:  # for example, if the environment was registered by class
        raise RunError(f"a worker process needs a package that is missing: {error}") from error
    return make


def failure(what: str, kind: type[Exception] = RunError) -> bytes:
    """Returns an answer that raises `kind` in the calling process."""
    return pickle.dumps((kind, what))


def message_of(method: str, *arguments: Any) -> bytes:
    """Returns the message that requests a method call."""
    return pickle.dumps((method, arguments), pickle.HIGHEST_PROTOCOL)


def value_of(answer: bytes) -> Any:
    """Returns the result in an answer, or raises its error."""
    kind, found = pickle.loads(answer)
    if kind is not None:
        raise kind(found)
    return found


def sendable(make: Callable[[], Any], advice: str) -> bytes:
    """Serializes an object's factory, with everything it needs, for another process.

    Args:
        make: Creates the object.
        advice: Alternative suggested in the error message.

    Raises:
        RunError: If the factory cannot be serialized.
    """
    try:
        return cloudpickle.dumps(make)
    except RunError:
        raise
    except Exception as error:  # pickling custom objects may raise anything
        raise RunError(
            f"the environment cannot be sent to another process ({error}): create "
            f"unpicklable objects inside its factory, {advice}"
        ) from error


class WorkerProcess:
    """A process that holds an object and executes its method calls, one at a time.

    It starts immediately and creates the object on the first call.

    Args:
        content: The object's factory, see `sendable`.
        name: Name of the process in messages, such as "collector process 1".
        silence: Decides when the process counts as frozen.

    Attributes:
        process: The process.
    """

    def __init__(self, content: bytes, name: str, silence: Silence) -> None:
        self._name, self._silence = name, silence
        self._is_watched, self._is_frozen, self._closed = False, False, threading.Event()
        context = multiprocessing.get_context("spawn")
        self._pipe, there = context.Pipe()
        signs, signs_there = context.Pipe(duplex=False)
        asked = _SAFE_PATH in os.environ
        self.process = context.Process(
            target=_serve, args=(there, signs_there, content, asked), name=name
        )
        # With the real `__main__`, the child would run the main program as `__mp_main__`, up to its
        # main guard, and so import TensorFlow. Objects from that program are sent by value instead.
        # PYTHONSAFEPATH keeps the working directory from preceding the standard library on the
        # child's `sys.path`, until the child receives the `sys.path` of this process.
        main = types.ModuleType("__main__")
        with _replaced(os.environ, _SAFE_PATH, "1"), _replaced(sys.modules, "__main__", main):
            with _signals_blocked():
                # The resource tracker ignores SIGINT and SIGTERM, and SIGHUP stays blocked in it.
                # Its start unblocks SIGINT and SIGTERM in this thread: block them again below.
                resource_tracker.ensure_running()
            with _signals_blocked():
                self.process.start()
        there.close()
        signs_there.close()
        assert self.process.pid is not None
        reaper().add([self.process.pid])
        # The process ignores SIGTERM, which multiprocessing would use to end it at exit.
        atexit.register(self.kill)
        threading.Thread(target=self._listen, args=[signs], name=name, daemon=True).start()

    def _listen(self, signs: Connection) -> None:
        """Kills the process if it is frozen, which ends any wait for its answer."""
        with suppress(EOFError, OSError), signs:
            while not self._closed.is_set():
                if signs.poll(TICK):
                    signs.recv_bytes()
                    self._silence.end()
                elif not self._is_watched:
                    self._silence.end()
                elif self._silence.tick():
                    self._is_frozen = True
                    self.process.kill()
                    return

    def send(self, message: bytes) -> None:
        """Sends a message, see `message_of`.

        Raises:
            LostError: If the process has died or is frozen.
        """
        with self._watched():
            self._pipe.send_bytes(message)

    def receive(self, timeout: float = 0.0) -> Any:
        """Waits for the answer and returns it.

        Args:
            timeout: Maximum wait in seconds; 0: until the process dies or is frozen.

        Raises:
            LostError: If the process has died or is frozen.
            TimeoutError: If no answer arrives in time. The process is killed, because a late answer
                would be mistaken for the next one.
            RunError, FloatingPointError: If the method raised an error; see `WorkerLoop`.
        """
        answer = None
        with self._death_told():
            is_there = not timeout or self._pipe.poll(timeout)
        if is_there:
            with self._watched():
                answer = self._pipe.recv_bytes()
        if answer is None:
            self.kill()
            raise TimeoutError
        return value_of(answer)

    @contextmanager
    def _death_told(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, OSError) as error:
            self.process.join(1.0)  # the pipe may close shortly before the process ends
            code = self.process.exitcode
            what = f"{self._name} died (exit code {code})"
            if self._is_frozen:
                seconds = self._silence.seconds
                what = f"{self._name} has sent no heartbeat for {seconds:g} seconds"
            raise LostError(what) from error

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Enables the detection of a frozen process during a wait."""
        self._is_watched = True
        try:
            with self._death_told():
                yield
        finally:
            self._is_watched = False

    def begin_to_close(self) -> None:
        """Asks the process to close its object and exit; `close` waits for it."""
        with suppress(OSError):  # dead or already closed
            self._pipe.send_bytes(_CLOSE)

    def close(self, deadline: float | None = None) -> None:
        """Closes the object and ends the process, which is killed at the deadline.

        Args:
            deadline: Time on the monotonic clock, if `begin_to_close` was called before. None calls
                it and sets the deadline in a few seconds.
        """
        if deadline is None:
            self.begin_to_close()
            deadline = time.monotonic() + _PATIENCE
        self.process.join(max(0.0, deadline - time.monotonic()))
        self.kill()

    def kill(self) -> None:
        """Kills the process."""
        self._closed.set()
        self.process.kill()
        self.process.join()
        self._pipe.close()
        atexit.unregister(self.kill)


def close_all(workers: list[WorkerProcess]) -> None:
    """Closes workers in parallel."""
    for worker in workers:
        worker.begin_to_close()
    deadline = time.monotonic() + _PATIENCE
    for worker in workers:
        worker.close(deadline)


_answered: list[Connection] = []  # in a worker process, holds its end of the pipe


def answer_and_end(what: str) -> None:
    """Raises a `RunError` in the trainer and ends this process."""
    for pipe in _answered:
        with suppress(OSError):
            pipe.send_bytes(failure(what))
    os._exit(1)


def _forget(*pipes: Connection) -> None:
    _answered.clear()
    for pipe in pipes:
        pipe.close()


def _serve(pipe: Connection, signs: Connection, content: bytes, asked_for_safe_path: bool) -> None:
    """Answers messages until it receives `_CLOSE` or the trainer is gone."""
    if not asked_for_safe_path:
        os.environ.pop(_SAFE_PATH, None)  # not for programs that this process starts
    for number in _STOP:
        # Ctrl-C reaches the whole process group, but the trainer decides when to stop. Unlike
        # SIG_IGN, a handler is not inherited by programs that an environment starts.
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP)
    threading.Thread(target=give_signs, args=[signs], daemon=True).start()
    _answered.append(pipe)
    # A forked child that keeps the pipes open would hide the end of this process.
    os.register_at_fork(after_in_child=partial(_forget, pipe, signs))
    served = WorkerLoop(content)
    try:
        while (message := pipe.recv_bytes()) != _CLOSE:
            pipe.send_bytes(served.answer(message))
        served.close()
    except (EOFError, ConnectionError):
        return  # the trainer is gone


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Blocks the stop signals in this thread.

    A process started meanwhile inherits the block until it unblocks the signals. Other threads of
    this process still receive them.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _replaced(mapping: MutableMapping[str, Any], key: str, value: Any) -> Iterator[None]:
    """Temporarily replaces the value of a key."""
    before = mapping.get(key)
    mapping[key] = value
    try:
        yield
    finally:
        if before is None:
            del mapping[key]
        else:
            mapping[key] = before
