"""Tasks for child processes, in a module that does not import TensorFlow."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np


def _started(child: Path) -> None:
    """Starts a process that inherits all file descriptors. Writes its process id to `child`."""
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    child.write_text(str(subprocess.Popen(command, close_fds=False).pid))


def returning(child: Path) -> np.ndarray:
    _started(child)
    if os.fork() == 0:
        time.sleep(600)
        os._exit(0)
    return np.arange(300_000)


def aborting(child: Path) -> None:
    _started(child)
    os.abort()


def failing() -> None:
    raise KeyError("no such thing")


class Fatal:
    def __reduce__(self) -> Any:
        os._exit(int(os.environ.get("CODE", "3")))


def dying() -> Any:
    os.write(1, b"output of the child")
    return [np.zeros(100_000), Fatal()]


def truncating() -> Any:
    dumps = pickle.dumps
    pickle.dumps = lambda answer: _Short(dumps(answer))  # type: ignore[assignment,misc]
    return np.zeros(1000)


class _Short(bytes):
    def __len__(self) -> int:
        return super().__len__() + 1


def reading() -> str:
    return sys.stdin.read()


def waiting(processes: str) -> None:
    """Starts another process, writes both process ids to the file `processes`, then sleeps."""
    simulator = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(f"{processes}.tmp").write_text(f"{os.getpid()} {simulator.pid}")
    os.replace(f"{processes}.tmp", processes)
    time.sleep(600)
