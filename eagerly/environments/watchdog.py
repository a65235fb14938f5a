"""Ends a process whose environment does not come back."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_TICKS = 8  # looks per timeout
_LONGEST_TICK = 1.0
OF_A_RUN = "No checkpoint was written from it; the same command continues from the last one."
_DEBUGGERS = {"bdb", "pdb"}


class Watchdog:
    """Watches the calls into environments that one thread of this process makes at a time.

    Such a call cannot be broken off from within: one that takes longer than the timeout ends the
    process, with a message and exit code 1. Time in which the process is stopped (Ctrl-Z) or
    stands in Python's debugger does not count. A call that holds Python's interpreter lock in C
    code all the time keeps the watchdog from looking, too.

    Args:
        timeout: Seconds that a call may take; 0 watches nothing.
        where: Says in words where the run is.
        advice: Ends the message: what came of it, and what to do.
        tell: Takes the message in place of the standard error output, without `where` and `advice`.

    Attributes:
        call: The call that is being made: whose, of which method, how many calls it stands for, and
            its thread; a new tuple for each call, None between calls.
    """

    def __init__(
        self,
        timeout: float,
        where: Callable[[], str],
        advice: str = OF_A_RUN,
        *,
        tell: Callable[[str], object] | None = None,
    ) -> None:
        self._timeout, self._where, self._advice, self._tell = timeout, where, advice, tell
        self.call: tuple[str, str, int, int] | None = None
        self._closed = threading.Event()
        self._watching = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        if timeout:
            self._watching.start()

    @contextmanager
    def calling(self, what: str, patience: int = 1) -> Iterator[None]:
        """Watches what is done while entered, which may take as long as `patience` calls."""
        self.call = what, "", patience, threading.get_ident()
        try:
            yield
        finally:
            self.call = None

    def another(self) -> Watchdog:
        """Makes another one, which watches another thread in the same way."""
        return Watchdog(self._timeout, self._where, self._advice, tell=self._tell)

    def close(self) -> None:
        """Stops watching, and waits for the thread to end: it refers to the whole run."""
        self._closed.set()
        if self._timeout:
            self._watching.join()

    def _watch(self) -> None:
        tick = min(self._timeout / _TICKS, _LONGEST_TICK)
        last, waited = None, 0.0
        # Ticks are counted, not the clock: it goes on while the process is stopped.
        while not self._closed.wait(tick):
            call = self.call
            waited = waited + tick if call is not None and call is last else 0.0
            last = call
            if call is not None and waited >= self._timeout * call[2]:
                frame = sys._current_frames().get(call[3])
                if _in_debugger(frame):
                    waited = 0.0
                else:
                    self._end_process(call, frame)

    def _end_process(self, call: tuple[str, str, int, int], frame: FrameType | None) -> None:
        name, method, patience, _ = call
        stack = "".join(traceback.format_stack(frame))
        what = (
            f"{name}{f', in {method},' if method else ''} has not come back for "
            f"{self._timeout * patience:g} seconds (--environment-timeout-seconds). It is here:\n"
            f"{stack}"
        )
        try:
            if self._tell is not None:
                self._tell(what)
                return
            sys.stderr.write(f"\nError: stopped {self._where()}: {what}{self._advice}\n")
            sys.stderr.flush()
        finally:  # also where nobody can read it
            os._exit(1)


def _in_debugger(frame: FrameType | None) -> bool:
    frames = traceback.walk_stack(frame) if frame else ()
    return any(each.f_globals.get("__name__") in _DEBUGGERS for each, _ in frames)
