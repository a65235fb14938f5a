"""Kills processes that outlive the process that started them, even if they are frozen.

Run as `python -m eagerly.reaper`. It reads process ids and folders from its standard input, one per
line. The input ends with the process at its other end, in whatever way that ends. Soon after, the
listed processes and their descendants are killed and the folders are removed.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil

_PATIENCE = 5.0  # seconds in which processes may end by themselves


def descendants(pid: int | None = None) -> set[int]:
    """Returns the processes that one has started, this one by default, and those that they have."""
    with suppress(psutil.Error):
        return {each.pid for each in psutil.Process(pid).children(recursive=True)}
    return set()


class Reaper:
    """A process that kills others soon after this one has ended, or when it is closed."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C and Ctrl-Z are not for it
        )
        assert self._process.stdin is not None
        self._input = self._process.stdin
        # A forked child that kept the pipe would hide the end of this process.
        os.register_at_fork(after_in_child=self._input.close)

    def add(self, pids: Iterable[int], folder: Path | None = None) -> None:
        """Adds processes to kill, and a folder to remove afterwards."""
        lines = [*map(str, pids), *([] if folder is None else [str(folder)])]
        with suppress(OSError):  # the reaper was killed, which does not end the run
            self._input.write("".join(f"{line}\n" for line in lines).encode())
            self._input.flush()

    def close(self) -> None:
        """Waits until the remaining processes are killed."""
        with suppress(OSError):
            self._input.close()
        self._process.wait()


@cache
def reaper() -> Reaper:
    """Returns the reaper of this process, which is closed at exit."""
    made = Reaper()
    atexit.register(made.close)
    return made


def main(lines: Iterable[str]) -> None:
    """Kills the processes in `lines` some time after these have ended, and removes the folders."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # when to end is not theirs to decide
    watched: list[psutil.Process] = []
    folders: list[str] = []

    def watch(pid: int) -> None:
        with suppress(psutil.Error):
            watched.append(psutil.Process(pid))  # which knows a pid that is used again

    for line in lines:
        word = line.rstrip("\n")
        if word.isdigit():
            watch(int(word))
        else:
            folders.append(word)
    for process in [each for each in watched if _runs(each)]:
        for child in descendants(process.pid):
            watch(child)
    deadline = time.monotonic() + _PATIENCE
    while any(map(_runs, watched)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for process in watched:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(watched, timeout=_PATIENCE)  # until then they may still write
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


if __name__ == "__main__":
    main(sys.stdin)
