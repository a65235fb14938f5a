"""One process per run directory."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from contextlib import suppress
from io import FileIO
from pathlib import Path

from eagerly.errors import RunError
from eagerly.storage.files import RunFiles

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
        OSError: If the lock cannot be opened, because a link stands in its place, for example.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._files = path, RunFiles(path)
        self._identity: tuple[int, int] | None = None
        self._file = self._locked()
        while self._file is None:  # another file took its place meanwhile
            self._file = self._locked()
        self._identity = _identity(os.fstat(self._file.fileno()))
        _held.add(self._identity)
        with suppress(OSError):  # a full disk; the lock holds all the same
            os.ftruncate(self._file.fileno(), 0)
            holder = f"process {os.getpid()} on {socket.gethostname()}\n"
            os.pwrite(self._file.fileno(), holder.encode(), 0)

    def _locked(self) -> FileIO | None:
        """Opens the lock file and locks it; None if it is no longer the one in its place."""
        found = self._files.status(_NAME)
        if found is not None and _identity(found) in _held:
            # Opening and closing the file once more would free the lock of the whole process.
            raise RunError(
                f"{self._path} is already being trained in this process: close that first"
            )
        file = self._files.open_to_write(_NAME, os.O_CREAT)
        try:
            self._lock(file)
            if os.fstat(file.fileno()).st_nlink > 1:
                # Another directory has the same file (a hard link), which is left as it is: it is
                # not written through, and who trains there has a lock of its own.
                self._files.own(_NAME, 0)
            found = self._files.status(_NAME)
            if found is not None and _identity(found) == _identity(os.fstat(file.fileno())):
                return file
        except BaseException:
            file.close()
            raise
        file.close()
        return None

    def _lock(self, file: FileIO) -> None:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            holder = os.pread(file.fileno(), 200, 0).decode(errors="replace").strip()
            raise RunError(
                f"{self._path} is being trained by another process "
                f"({holder or 'which just begins'}): stop that, or choose another --run-dir"
            ) from error

    def check(self) -> None:
        """Checks that the run directory is still the one that was locked.

        Raises:
            OSError: If it has vanished, another one stands in its place, or the lock was removed,
                so that a second process could take it.
        """
        found = self._files.status(_NAME)
        if found is None:
            here = self._path.is_dir()
            what = "its lock was removed" if here else "the run directory has vanished"
            raise OSError(errno.ENOENT, what, str(self._path))
        if _identity(found) != self._identity:
            raise OSError(f"{self._path} is no longer the directory that was opened")

    def __del__(self) -> None:
        """Frees the run directory where it was forgotten."""
        self.close()

    def close(self) -> None:
        """Frees the run directory."""
        if self._identity and self._file:
            _held.discard(self._identity)
            self._file.close()
            self._identity = None


def is_locked(path: Path) -> bool:
    """Whether a process trains in a run directory now; this one counts, too."""
    files = RunFiles(path)
    found = files.status(_NAME)
    if found is None:
        return False
    if _identity(found) in _held:
        return True
    try:
        with files.open(_NAME) as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return True
    except (OSError, ValueError):
        return False
    return False


def lock_for_child(path: Path) -> FileIO:
    """Locks a file for a process that is about to be started, until that process has ended.

    It is a lock of `flock`: whoever inherits the open file has it, and the last to close the file,
    or to die, frees it. It covers the seconds until the process takes the lock of its run.

    Args:
        path: The file, which is made if needed; its content does not matter.

    Returns:
        The open file: give its descriptor to the process, then close it here.

    Raises:
        OSError: If another process has the lock, or the file cannot be opened.
    """
    file = RunFiles(path.parent).open_to_write(path.name, os.O_CREAT)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise OSError(errno.EBUSY, "another command is starting this run", str(path)) from error
    except OSError:  # a file system without such locks
        pass
    return file


def is_locked_for_child(path: Path) -> bool:
    """Whether a process that was started with `lock_for_child` lives."""
    try:
        with RunFiles(path.parent).open(path.name) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (OSError, ValueError):
        return False
    return False


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
