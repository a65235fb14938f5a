"""Signs of life of other processes. A process that is frozen gives none, whatever froze it."""

from __future__ import annotations

import time
from contextlib import suppress
from multiprocessing.connection import Connection

TICK = 1.0  # seconds between two looks for a sign of life
_GRACE = 2.0  # seconds beyond the timeout of a call, which the process reports itself if it can
_HURRIED = 5.0  # seconds of silence that are waited for once the run is asked to stop


class Silence:
    """Decides when a process that gives no sign of life counts as frozen.

    Ticks are counted instead of seconds, because the clock also runs while this process is stopped.

    Args:
        timeout: Seconds that a call may hold Python's interpreter lock; 0: any time.

    Attributes:
        seconds: The silence so far.
    """

    def __init__(self, timeout: float) -> None:
        self._limit, self.seconds = timeout and timeout + _GRACE, 0.0

    def end(self) -> None:
        """Resets the silence, after a sign of life or while none is expected."""
        self.seconds = 0.0

    def tick(self) -> bool:
        """Counts a tick without a sign of life, and returns whether the process is frozen."""
        self.seconds += TICK
        return 0.0 < self._limit <= self.seconds

    def shorten(self) -> None:
        """Lowers the limit to a few seconds."""
        self._limit = min(self._limit or _HURRIED, _HURRIED)


def give_signs(pipe: Connection) -> None:
    """Sends signs of life until the pipe is closed; to be run in a thread."""
    with suppress(OSError):
        while True:
            pipe.send_bytes(b"\0")
            time.sleep(TICK / 2)
