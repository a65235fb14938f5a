"""Loading TensorFlow without its known start-up messages, and with every other one.

They are written by C++ to file descriptor 2, before TensorFlow's logging is set up, and twice: its
library for profiling (`_pywrap_profiler_plugin`) has the runtime in it a second time. Neither
`TF_CPP_MIN_LOG_LEVEL` nor Python's `logging` reaches them.
"""

from __future__ import annotations

import os
import secrets
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from eagerly import noise
from eagerly.importing import around_import

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
# Whoever sets one of these wants to read more than TensorFlow says by itself.
_VERBOSE = ("TF_CPP_MAX_VLOG_LEVEL", "TF_CPP_VMODULE")
_PATIENCE = 5000  # milliseconds to wait for the filter's last words
_GRACE = 0.2  # seconds to wait for its end

_lock = threading.Lock()
_entered = 0  # by how many threads, or times in one
_filter: _Filter | None = None
_devices_found = False


@contextmanager
def quiet_tensorflow() -> Iterator[None]:
    """Leaves TensorFlow's known start-up messages out if it is imported while this is entered.

    Every other line appears as it is written, also the last words of a process that aborts. For
    the time after, `TF_CPP_MIN_LOG_LEVEL` is set to 1, which leaves TensorFlow's information out
    and keeps warnings and errors. A level that the user has set stays; with 0, or a verbosity of
    `TF_CPP_MAX_VLOG_LEVEL`, everything is shown. Nothing is done unless TensorFlow is imported.
    """
    undo = quiet_when_imported()
    try:
        yield
    finally:
        undo()


def quiet_when_imported() -> Callable[[], None]:
    """Does what `quiet_tensorflow` does from now on, until what it returns is called."""
    if "tensorflow" in sys.modules:
        return lambda: None
    return around_import("tensorflow", _quiet)


def find_devices() -> None:
    """Lets TensorFlow look for devices; where there is no GPU, it does not say so as an error."""
    global _devices_found
    if _devices_found:
        return
    with _quiet():
        import tensorflow as tf

        tf.config.list_physical_devices()
    _devices_found = True


@contextmanager
def _quiet() -> Iterator[None]:
    if os.environ.get(_LEVEL) == "0" or any(name in os.environ for name in _VERBOSE):
        yield
        return
    os.environ.setdefault(_LEVEL, "1")
    _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    """Lets the first of those that are inside start the filter: the descriptor is everybody's."""
    global _entered, _filter
    with _lock:
        _entered += 1
        # Without a standard error, 2 may be the number of any file; frozen programs have no
        # interpreter to be started.
        possible = sys.__stderr__ is not None and sys.executable and not hasattr(sys, "frozen")
        if _entered == 1 and possible:
            with suppress(OSError):  # nothing is left out then
                _filter = _Filter()


def _leave() -> None:
    global _entered, _filter
    with _lock:
        _entered -= 1
        if _entered == 0 and _filter is not None:
            _filter.close()
            _filter = None


class _Filter:
    """Leads file descriptor 2 through a process that leaves noise out.

    It is a process, because this one may abort; and not a fork, because this one may have threads.

    Raises:
        OSError: If there is no file descriptor 2, or no process can be started.
    """

    _left: list[subprocess.Popen[bytes]] = []  # noqa: RUF012  - others still write to them

    def __init__(self) -> None:
        _flush()
        self._end = f"<{secrets.token_hex(16)}>".encode()
        with ExitStack() as failing:
            self._screen = os.dup(2)
            failing.callback(os.close, self._screen)
            self._held, self._into = os.pipe()
            failing.callback(os.close, self._held)
            failing.callback(os.close, self._into)
            # In a session of its own: Ctrl-C is for this process, which may still have to say why.
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", noise.__file__, self._end.decode()],
                stdin=self._held,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            failing.pop_all()
        os.dup2(self._into, 2)

    def close(self) -> None:
        """Leads it where it was, once everything that was written is there."""
        _flush()
        with suppress(OSError):  # somebody has closed it
            if os.path.sameopenfile(2, self._into):  # else somebody leads it elsewhere
                os.dup2(self._screen, 2)
        said = self._process.stdout
        assert said is not None
        try:
            os.write(self._into, self._end)
            ready = select.poll()  # select() fails where many files are open
            ready.register(said, select.POLLIN)
            came = ready.poll(_PATIENCE) and os.read(said.fileno(), 1)
            if not came:  # it was killed: what it has not read is shown whole
                os.set_blocking(self._held, False)
                with suppress(OSError):
                    os.write(self._screen, os.read(self._held, 1 << 20).replace(self._end, b""))
        finally:
            said.close()
            for descriptor in (self._into, self._held, self._screen):
                os.close(descriptor)
        try:
            self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:  # a process that was started meanwhile writes to it
            self._left.append(self._process)


def _flush() -> None:
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.flush()
