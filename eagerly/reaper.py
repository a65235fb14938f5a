"""Kills processes that outlive the process that started them, even if they are frozen.

`python -m eagerly.reaper` reads process ids and folders from its standard input, one per line. The
input ends when the parent process ends, for whatever reason. Soon afterwards, the listed processes
and their descendants are killed and the folders are removed.
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

_PATIENCE = 5.0  # seconds that processes have to exit by themselves


def descendants(pid: int | None = None) -> set[int]:
    """Returns the ids of all descendants of a process, by default of this one."""
    with suppress(psutil.Error):
        return {each.pid for each in psutil.Process(pid).children(recursive=True)}
    return set()


class Reaper:
    """A helper process that kills others soon after this process ends, or on `close`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # shields it from Ctrl-C and Ctrl-Z
        )
        assert self._process.stdin is not None
        self._input = self._process.stdin
        # A forked child that keeps the pipe open would hide the end of this process.
        os.register_at_fork(after_in_child=self._input.close)

    def add(self, pids: Iterable[int], folder: Path | None = None) -> None:
        """Adds processes to kill, and a folder to remove afterwards."""
        lines = [*map(str, pids), *([] if folder is None else [str(folder)])]
        with suppress(OSError):  # the reaper was killed, but the run continues
            self._input.write("".join(f"{line}\n" for line in lines).encode())
            self._input.flush()

    def close(self) -> None:
        """Ends the input, and waits until the remaining processes are killed."""
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
    """Kills the processes in `lines` after the input has ended, then removes the folders."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # only the end of the input stops the reaper
    watched: list[psutil.Process] = []
    folders: list[str] = []

    def watch(pid: int) -> None:
        with suppress(psutil.Error):
            watched.append(psutil.Process(pid))  # the object detects reused process ids

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
    psutil.wait_procs(watched, timeout=_PATIENCE)  # processes may write files until then
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


if __name__ == "__main__":
    main(sys.stdin)
