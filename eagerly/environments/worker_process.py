"""Objects in processes of their own, which neither signals nor a dead trainer leave behind.

Processes are spawned, not forked: a fork would copy TensorFlow with its threads, and the trainer's
open files, locks included. They never import TensorFlow, nor the program that was started.
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
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
from threadpoolctl import threadpool_limits

from eagerly.environments.silence import TICK, Silence, give_signs
from eagerly.errors import RunError
from eagerly.quiet import quiet_when_imported
from eagerly.reaper import reaper

_STOP = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
_SAFE_PATH = "PYTHONSAFEPATH"
_PATIENCE = 5.0  # seconds that closing an object may take
_CLOSE = pickle.dumps(None)
# What is raised elsewhere as what it was there; everything else comes with its traceback.
_TOLD: tuple[type[Exception], ...] = (RunError, FloatingPointError)


class LostError(Exception):
    """An object does not answer, because it or its process no longer exists."""


class WorkerLoop:
    """An object that is made, and whose methods are called, by messages.

    What it raises is an answer, too: exception classes may be unknown to whoever asked.

    Args:
        content: What makes it, as cloudpickle writes it.
    """

    def __init__(self, content: bytes) -> None:
        self._content: bytes | None = content
        self._made: Any = None

    def answer(self, message: bytes, *more: Any) -> bytes:
        """Calls the method that a message names, with its arguments and more; returns the answer.

        The first message makes the object before.
        """
        try:
            method, arguments = pickle.loads(message)
            if self._content is not None:
                content, self._content = self._content, None
                self._made = _unpickled(content)()
                threadpool_limits(1, user_api="blas")  # as in the trainer: the same bits
            found = getattr(self._made, method)(*arguments, *more)
            return pickle.dumps((None, found), pickle.HIGHEST_PROTOCOL)
        except _TOLD as error:
            kind = FloatingPointError if isinstance(error, FloatingPointError) else RunError
            return failure(str(error), kind)
        except BaseException:  # such as SystemExit, or the panic of a simulator in Rust
            return failure(f"it failed in its process:\n{traceback.format_exc()}")

    def close(self) -> None:
        """Closes the object."""
        if self._made is not None:
            self._made.close()


def _unpickled(content: bytes) -> Callable[[], Any]:
    try:
        make: Callable[[], Any] = cloudpickle.loads(content)
    except ImportError as error:  # a package of an environment that is registered by its class
        raise RunError(f"its environment needs a package that is missing there: {error}") from error
    return make


def failure(what: str, kind: type[Exception] = RunError) -> bytes:
    """Returns the answer that raises a `RunError`, or one of its kind, where it is read."""
    return pickle.dumps((kind, what))


def message_of(method: str, *arguments: Any) -> bytes:
    """Returns the message that calls a method."""
    return pickle.dumps((method, arguments), pickle.HIGHEST_PROTOCOL)


def value_of(answer: bytes) -> Any:
    """Returns what an answer holds, or raises it."""
    kind, found = pickle.loads(answer)
    if kind is not None:
        raise kind(found)
    return found


def sendable(make: Callable[[], Any], advice: str) -> bytes:
    """Returns what makes an object, with all that it needs, so that another process can make it.

    Args:
        make: Makes it.
        advice: What to do where that cannot be.

    Raises:
        RunError: If something in it cannot be sent.
    """
    try:
        return cloudpickle.dumps(make)
    except RunError:
        raise
    except Exception as error:  # whatever the objects say that it holds
        raise RunError(
            f"the environment cannot be sent to another process ({error}): let its factory make "
            f"what cannot, {advice}"
        ) from error


class WorkerProcess:
    """A process with an object, whose methods are called from here, one at a time.

    It starts at once, and makes the object when it is first asked.

    Args:
        content: What makes the object, see `sendable`.
        name: What the process is called in messages, such as "the process of collector 1".
        silence: Decides when the process counts as frozen, while it is waited for.

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
        # It would run the program that was started again, as `__mp_main__`, up to its main guard,
        # and with it whatever that imports: TensorFlow. What an object needs of it is sent by value
        # instead. And Python would put the working directory first on its path, before its own
        # library, until it is told the path of this process.
        main = types.ModuleType("__main__")
        with _replaced(os.environ, _SAFE_PATH, "1"), _replaced(sys.modules, "__main__", main):
            with _signals_blocked():
                # Of these it ignores all but the hangup, which stays blocked in it. By itself,
                # because it lets the others through here as it starts.
                resource_tracker.ensure_running()
            with _signals_blocked():
                self.process.start()
        there.close()
        signs_there.close()
        assert self.process.pid is not None
        reaper().add([self.process.pid])
        # It does not react to SIGTERM, with which multiprocessing would end it at exit.
        atexit.register(self.kill)
        threading.Thread(target=self._listen, args=[signs], name=name, daemon=True).start()

    def _listen(self, signs: Connection) -> None:
        """Kills the process if it is frozen, which ends whatever waits for it."""
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
        """Asks something, see `message_of`.

        Raises:
            LostError: If the process has died, or is frozen.
        """
        with self._watched():
            self._pipe.send_bytes(message)

    def receive(self, timeout: float = 0.0) -> Any:
        """Waits for the answer, and returns it.

        Args:
            timeout: Seconds to wait at most; 0: until the process has died or is frozen.

        Raises:
            LostError: If the process has died, or is frozen.
            TimeoutError: If there is no answer. The process is killed: what it may still answer
                would be taken for another answer.
            RunError, FloatingPointError: What the object raised.
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
            self.process.join(1.0)  # the pipe may close a moment before the process has ended
            code = self.process.exitcode
            what = f"{self._name} (exit code {code}) has died"
            if self._is_frozen:
                seconds = self._silence.seconds
                what = f"{self._name} has given no sign of life for {seconds:g} seconds"
            raise LostError(what) from error

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Waits for the process without a limit other than that of its silence."""
        self._is_watched = True
        try:
            with self._death_told():
                yield
        finally:
            self._is_watched = False

    def begin_to_close(self) -> None:
        """Asks the process to close its object and to end; `close` waits for it."""
        with suppress(OSError):  # dead, or closed
            self._pipe.send_bytes(_CLOSE)

    def close(self, deadline: float | None = None) -> None:
        """Closes the object and ends the process; it is killed if that lasts.

        Args:
            deadline: Until when to wait, on the monotonic clock; None: some seconds.
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
    """Closes workers side by side."""
    for worker in workers:
        worker.begin_to_close()
    deadline = time.monotonic() + _PATIENCE
    for worker in workers:
        worker.close(deadline)


_answered: list[Connection] = []  # in the process of a worker its end of the pipe


def answer_and_end(what: str) -> None:
    """Raises a `RunError` where an answer is waited for, and ends this process."""
    for pipe in _answered:
        with suppress(OSError):
            pipe.send_bytes(failure(what))
    os._exit(1)


def _serve(pipe: Connection, signs: Connection, content: bytes, asked_for_safe_path: bool) -> None:
    """Answers until it is told to close, or the trainer is no more."""
    if not asked_for_safe_path:
        os.environ.pop(_SAFE_PATH, None)  # it was for this process alone
    for number in _STOP:
        # Ctrl-C reaches the whole process group; when to end is the trainer's decision. A handler,
        # unlike SIG_IGN, is not inherited by programs that an environment starts.
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP)
    threading.Thread(target=give_signs, args=[signs], daemon=True).start()
    quiet_when_imported()  # an environment may import TensorFlow
    _answered.append(pipe)
    served = WorkerLoop(content)
    try:
        while (message := pipe.recv_bytes()) != _CLOSE:
            pipe.send_bytes(served.answer(message))
        served.close()
    except (EOFError, ConnectionError):
        return  # nobody is left to be told


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
