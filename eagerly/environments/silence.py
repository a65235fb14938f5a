"""Heartbeats of other processes. A frozen process sends none, regardless of the cause."""

from __future__ import annotations

import time
from contextlib import suppress
from multiprocessing.connection import Connection

TICK = 1.0  # seconds between heartbeat checks
_GRACE = 2.0  # seconds added to a call's timeout, so that the process can report it first
_HURRIED = 5.0  # seconds of silence allowed once the run is asked to stop


class Silence:
    """Decides when a process without heartbeats counts as frozen.

    Counts ticks instead of reading the clock, which also runs while this process is stopped.

    Args:
        timeout: Seconds that a call may hold the GIL; 0: unlimited.

    Attributes:
        seconds: Duration of the current silence.
        is_short: Whether only a few seconds of silence are allowed.
    """

    def __init__(self, timeout: float) -> None:
        self._limit, self.seconds = timeout and timeout + _GRACE, 0.0
        self.is_short = False

    def end(self) -> None:
        """Ends the silence, after a heartbeat or while no heartbeat is expected."""
        self.seconds = 0.0

    def tick(self) -> bool:
        """Counts a tick without a heartbeat and returns whether the process is frozen."""
        self.seconds += TICK
        limit = min(self._limit or _HURRIED, _HURRIED) if self.is_short else self._limit
        return 0.0 < limit <= self.seconds


def give_signs(pipe: Connection) -> None:
    """Sends heartbeats until the pipe is closed; runs in a background thread."""
    with suppress(OSError):
        while True:
            pipe.send_bytes(b"\0")
            time.sleep(TICK / 2)
