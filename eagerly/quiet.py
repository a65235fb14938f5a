"""Hides known startup messages of TensorFlow, and keeps all other output.

The messages are written by C++ code to file descriptor 2, before TensorFlow's logging is set up.
They appear twice, because the profiler library (`_pywrap_profiler_plugin`) contains a second copy
of the runtime. Neither `TF_CPP_MIN_LOG_LEVEL` nor Python's `logging` affects them.
"""

from __future__ import annotations

import os
import secrets
import select
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from eagerly import noise

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
# Users who set one of these want more output than TensorFlow's default.
_VERBOSE = ("TF_CPP_MAX_VLOG_LEVEL", "TF_CPP_VMODULE")
_PATIENCE = 5000  # milliseconds to wait for the filter's remaining output
_GRACE = 0.2  # seconds to wait for the filter to exit

_lock = threading.Lock()
_entered = 0  # nesting depth, over all threads
_filter: _Filter | None = None
_devices_found = False


def find_devices() -> None:
    """Initializes TensorFlow's devices and hides its errors about a missing GPU."""
    global _devices_found
    if _devices_found:
        return
    with quiet():
        import tensorflow as tf

        tf.config.list_physical_devices()
    _devices_found = True


@contextmanager
def quiet() -> Iterator[None]:
    """Hides TensorFlow's known startup messages inside the `with` block.

    All other lines appear immediately, including the last output of a process that aborts.

    `TF_CPP_MIN_LOG_LEVEL` is set to 1, which hides info messages and keeps warnings and errors. A
    level set by the user is kept. With level 0, or with `TF_CPP_MAX_VLOG_LEVEL` or `TF_CPP_VMODULE`
    set, everything is shown.
    """
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
    """Starts the filter on the first entry. All threads share the file descriptor."""
    global _entered, _filter
    with _lock:
        _entered += 1
        # Without standard error, descriptor 2 may be any file. Frozen programs have no interpreter
        # that could run the filter.
        possible = sys.__stderr__ is not None and sys.executable and not hasattr(sys, "frozen")
        if _entered == 1 and possible:
            with suppress(OSError):  # without a filter, everything is shown
                _filter = _Filter()


def _leave() -> None:
    global _entered, _filter
    with _lock:
        _entered -= 1
        if _entered == 0 and _filter is not None:
            _filter.close()
            _filter = None


class _Filter:
    """Filters stderr through a helper process that drops TensorFlow's startup messages.

    The helper survives if this process aborts. It is a new program instead of a fork, because this
    process may have threads.

    Raises:
        OSError: If file descriptor 2 is closed, or no process can be started.
    """

    _left: list[subprocess.Popen[bytes]] = []  # noqa: RUF012  - filters still used by others

    def __init__(self) -> None:
        _flush()
        self._end = f"<{secrets.token_hex(16)}>".encode()
        with ExitStack() as failing:
            self._screen = os.dup(2)
            failing.callback(os.close, self._screen)
            self._held, self._into = os.pipe()
            failing.callback(os.close, self._held)
            failing.callback(os.close, self._into)
            # A new session keeps Ctrl-C from killing the filter before this process's last output.
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", noise.__file__, self._end.decode()],
                stdin=self._held,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            failing.pop_all()
        os.dup2(self._into, 2)

    def close(self) -> None:
        """Restores file descriptor 2 and waits until all pending output is written."""
        _flush()
        with suppress(OSError):  # descriptor 2 was closed
            if os.path.sameopenfile(2, self._into):  # otherwise 2 was redirected meanwhile
                os.dup2(self._screen, 2)
        said = self._process.stdout
        assert said is not None
        try:
            os.write(self._into, self._end)
            ready = select.poll()  # select() fails if many files are open
            ready.register(said, select.POLLIN)
            came = ready.poll(_PATIENCE) and os.read(said.fileno(), 1)
            if not came:  # the filter was killed: show its unread input unfiltered
                os.set_blocking(self._held, False)
                with suppress(OSError):
                    os.write(self._screen, os.read(self._held, 1 << 20).replace(self._end, b""))
        finally:
            said.close()
            for descriptor in (self._into, self._held, self._screen):
                os.close(descriptor)
        try:
            self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:  # a child process still writes to the filter
            self._left.append(self._process)


def _flush() -> None:
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.flush()
