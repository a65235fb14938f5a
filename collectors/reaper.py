"""Ends what is left of a cluster on this machine, once the process that started it is no more.

Run as `python -m eagerly.collectors.reaper PID...`: waits until its standard input ends, which it
does with whoever holds the other end, however that ends, and kills these processes soon after. By
themselves some of Ray's look for their head for a minute.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable

import psutil

_PATIENCE = 3.0  # seconds in which processes may end by themselves


def descendants() -> set[int]:
    """Returns the processes that this one has started, and those that they have."""
    return {each.pid for each in psutil.Process().children(recursive=True)}


class Reaper:
    """A process that ends others soon after this one has ended, or when it is closed.

    Args:
        pids: The others.
    """

    def __init__(self, pids: Iterable[int]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, *map(str, pids)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is not for it
        )

    def close(self) -> None:
        """Lets it do its work now, and waits for it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def main(pids: list[int]) -> None:
    """Kills processes some time after the standard input has ended."""
    watched = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    sys.stdin.read()
    deadline = time.monotonic() + _PATIENCE
    while any(each.is_running() for each in watched) and time.monotonic() < deadline:
        time.sleep(0.05)
    for process in watched:
        if process.is_running():  # which knows a pid that is another's by now
            process.kill()


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]])
