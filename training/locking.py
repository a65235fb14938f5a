"""One process per run directory."""

from __future__ import annotations

import fcntl
import os
import socket
from contextlib import suppress
from pathlib import Path

from eagerly.training.errors import RunError

_NAME = "lock"
_held: set[tuple[int, int]] = set()  # by this process: its own record locks do not stop it


class RunLock:
    """Keeps a run directory for this process, until it is closed or the process is dead.

    It is a record lock (POSIX `fcntl`), which belongs to the process alone: environments in
    processes of their own, forked ones too, neither inherit it nor outlive it with it. A lock of
    `flock` would be inherited.

    Args:
        path: The run directory, which must exist.

    Raises:
        RunError: If another process, or another part of this one, has it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path / _NAME
        if self._path.exists() and _identity(os.stat(self._path)) in _held:
            # Opening and closing the file once more would free the lock of the whole process.
            raise RunError(f"{path} is already being trained in this process: close that first")
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(self._path, flags, 0o644)
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._descriptor, 200, 0).decode(errors="replace").strip()
            os.close(self._descriptor)
            if not isinstance(error, BlockingIOError | PermissionError):
                raise
            raise RunError(
                f"{path} is being trained by another process ({holder or 'which just begins'}): "
                "stop that, or choose another --run-dir"
            ) from error
        self._identity = _identity(os.fstat(self._descriptor))
        _held.add(self._identity)
        self._held = True
        with suppress(OSError):  # a full disk; the lock holds all the same
            os.ftruncate(self._descriptor, 0)
            os.pwrite(
                self._descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0
            )

    def check(self) -> None:
        """Checks that the run directory is still the one that was locked.

        Raises:
            OSError: If it has vanished, another one stands in its place, or the lock was removed,
                so that a second process could take it.
        """
        try:
            found = os.stat(self._path, follow_symlinks=False)
        except OSError as error:
            here = self._path.parent.is_dir()
            what = "its lock was removed" if here else "the run directory has vanished"
            raise OSError(error.errno, what, str(self._path.parent)) from error
        if _identity(found) != self._identity:
            raise OSError(f"{self._path.parent} is no longer the directory that was opened")

    def __del__(self) -> None:
        """Frees the run directory where it was forgotten."""
        if hasattr(self, "_identity"):
            self.close()

    def close(self) -> None:
        """Frees the run directory."""
        if self._held:
            self._held = False
            _held.discard(self._identity)
            os.close(self._descriptor)


def is_locked(path: Path) -> bool:
    """Whether a process trains in a run directory now; this one counts, too."""
    try:
        if _identity(os.stat(path / _NAME)) in _held:
            return True
        descriptor = os.open(path / _NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
