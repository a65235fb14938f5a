"""Terminates a process whose environment hangs."""

from __future__ import annotations

import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_log = logging.getLogger(__name__)
_TICKS = 8  # checks per timeout
_LONGEST_TICK = 1.0
_FIRST_NOTE, _NOTE_EVERY = 5.0, 60.0  # seconds of a reset without a time limit
OF_A_RUN = "Steps after the last checkpoint are lost; the same command resumes from the last one."
_DEBUGGERS = {"bdb", "pdb"}


class Watchdog:
    """Monitors the environment calls of one thread of this process.

    A hanging call cannot be interrupted from within. A call that exceeds the timeout therefore
    terminates the process, with a message and exit code 1. Time during which the process is stopped
    (Ctrl-Z) or in Python's debugger does not count. A call that never releases the GIL also blocks
    the watchdog.

    Args:
        timeout: Seconds allowed per call; 0 disables the watchdog.
        where: Returns a description of the run's progress.
        advice: End of the message, which states the consequences and the remedy.
        tell: Receives the message instead of stderr, without `where` and `advice`.
        limits_resets: Whether the timeout applies to resets. If not, a message is logged while a
            reset takes long.

    Attributes:
        call: The call in progress: environment, method, number of timeouts that it may take, and
            thread id. Each call needs a new tuple; None between calls.
    """

    def __init__(
        self,
        timeout: float,
        where: Callable[[], str],
        advice: str = OF_A_RUN,
        *,
        tell: Callable[[str], object] | None = None,
        limits_resets: bool = True,
    ) -> None:
        self._timeout, self._where, self._advice, self._tell = timeout, where, advice, tell
        self._limits_resets = limits_resets
        self.call: tuple[str, str, int, int] | None = None
        self._closed = threading.Event()
        self._watching = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._is_active = bool(timeout) or not limits_resets
        if self._is_active:
            self._watching.start()

    @contextmanager
    def calling(self, what: str, patience: int = 1) -> Iterator[None]:
        """Monitors a `with` block, which may take up to `patience` times the timeout."""
        self.call = what, "", patience, threading.get_ident()
        try:
            yield
        finally:
            self.call = None

    @property
    def awaits_reset(self) -> bool:
        """Whether a reset without a time limit is in progress."""
        call = self.call
        return not self._limits_resets and call is not None and call[1] == "reset"

    def another(self) -> Watchdog:
        """Creates a watchdog with the same settings for another thread."""
        return Watchdog(
            self._timeout,
            self._where,
            self._advice,
            tell=self._tell,
            limits_resets=self._limits_resets,
        )

    def close(self) -> None:
        """Stops the watchdog and joins its thread, which references the whole run."""
        self._closed.set()
        if self._is_active:
            self._watching.join()

    def _watch(self) -> None:
        tick = min(self._timeout / _TICKS, _LONGEST_TICK) or _LONGEST_TICK
        last, waited, next_note = None, 0.0, _FIRST_NOTE
        # Counts ticks, because the clock also runs while the process is stopped.
        while not self._closed.wait(tick):
            call = self.call
            waited = waited + tick if call is not None and call is last else 0.0
            last = call
            if call is not None and call[1] == "reset" and not self._limits_resets:
                next_note = next_note if waited else _FIRST_NOTE
                if waited >= next_note:
                    next_note += _NOTE_EVERY
                    _log.info("%s waits for its reset, without a time limit", call[0])
            elif call is not None and self._timeout and waited >= self._timeout * call[2]:
                frame = sys._current_frames().get(call[3])
                if _in_debugger(frame):
                    waited = 0.0
                else:
                    self._end_process(call, frame)

    def _end_process(self, call: tuple[str, str, int, int], frame: FrameType | None) -> None:
        name, method, patience, _ = call
        stack = "".join(traceback.format_stack(frame))
        what = (
            f"{name}{f': {method}' if method else ''} timed out after "
            f"{self._timeout * patience:g} seconds (--environment-timeout-seconds). Stack:\n"
            f"{stack}"
        )
        try:
            if self._tell is not None:
                self._tell(what)
                return
            sys.stderr.write(f"\nError: stopped {self._where()}: {what}{self._advice}\n")
            sys.stderr.flush()
        finally:  # even if the message cannot be written
            os._exit(1)


def _in_debugger(frame: FrameType | None) -> bool:
    frames = traceback.walk_stack(frame) if frame else ()
    return any(each.f_globals.get("__name__") in _DEBUGGERS for each, _ in frames)
