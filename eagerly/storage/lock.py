"""Locks that restrict each run directory to one process."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import socket
import struct
import sys
from contextlib import suppress
from io import BufferedReader, FileIO
from pathlib import Path
from weakref import WeakValueDictionary

from eagerly.errors import RunError
from eagerly.storage.files import RunFiles

_NAME = "lock"
# Open file description locks, which are public on Linux only and a private API on macOS.
_OPEN_FILE_LOCKS = sys.platform == "linux" and hasattr(fcntl, "F_OFD_SETLK")
_FLOCK = "hhqqi"  # Linux struct flock: type, whence, start, length (0: all), process
_HOLDER = re.compile(r"process (\d{1,9}) on (.*)")


class RunLock:
    """Locks a run directory until the lock is closed or the process dies.

    On Linux, this is an open file description lock. The process keeps it when it opens and closes
    the file again, for example to copy the run directory. Forked children close their copy of the
    description, which would otherwise hold the lock after the death of this process. Children
    forked by C code cannot do so. If one outlives this process, the error message of the next
    process reports that the lock holder is dead.

    Elsewhere, it is a POSIX record lock (`fcntl`). Children do not inherit it, but the process
    loses it when it closes any descriptor of the file. `check` acquires it again.

    Args:
        path: The run directory, which must exist.

    Raises:
        RunError: If another process, or another `RunLock` of this process, holds the lock.
        OSError: If the lock file cannot be opened, for example because it is a link.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._files = path, RunFiles(path)
        self._identity: tuple[int, int] | None = None
        while (file := self._locked()) is None:
            pass  # the file was replaced in the meantime
        self._file, self._identity = file, _identity(os.fstat(file.fileno()))
        _held[self._identity] = self
        with suppress(OSError):  # for example a full disk; the lock is still held
            os.ftruncate(self._file.fileno(), 0)
            holder = f"process {os.getpid()} on {socket.gethostname()}\n"
            os.pwrite(self._file.fileno(), holder.encode(), 0)

    def _locked(self) -> FileIO | None:
        """Opens and locks the lock file. Returns None if it was replaced in the meantime."""
        found = self._files.status(_NAME)
        if found is not None and _identity(found) in _held:
            # Opening and closing the file again would release the lock of the whole process.
            raise RunError(
                f"{self._path} is already being trained in this process: close that trainer, or "
                "those checkpoints, first"
            )
        file = self._files.open_to_write(_NAME, os.O_CREAT)
        try:
            self._lock(file)
            if os.fstat(file.fileno()).st_nlink > 1:
                # Another directory shares this file (a hard link). Replace it with a copy, so that
                # the original is not modified and the other directory has its own lock.
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
            _take(file)
        except (BlockingIOError, PermissionError) as error:
            holder = os.pread(file.fileno(), 200, 0).decode(errors="replace").strip()
            if _is_dead(holder):
                raise RunError(
                    f"{self._path} is locked, although the lock holder is dead ({holder}): one of "
                    f"its child processes keeps the lock. End it (lsof {self._path / _NAME} lists "
                    "it), or choose another directory"
                ) from error
            raise RunError(
                f"{self._path} is being trained by another process "
                f"({holder or 'which is just starting'}): stop it, or choose another directory"
            ) from error

    def check(self) -> None:
        """Validates that the run directory is still the locked one, and acquires the lock again.

        Raises:
            OSError: If the directory vanished or was replaced, the lock file was removed, so that a
                second process could lock the run, or another process now holds the lock.
        """
        found = self._files.status(_NAME)
        if found is None:
            here = self._path.is_dir()
            what = "its lock was removed" if here else "the run directory was removed or moved"
            raise OSError(errno.ENOENT, what, str(self._path))
        if _identity(found) != self._identity:
            raise OSError(f"{self._path} is no longer the directory that was opened")
        try:
            _take(self._file)
        except (BlockingIOError, PermissionError) as error:
            what = "another process is now training in this run directory"
            raise OSError(errno.EBUSY, what, str(self._path)) from error

    def __del__(self) -> None:
        """Releases the lock when the object is garbage-collected."""
        self.close()

    def close(self) -> None:
        """Releases the lock."""
        if self._identity:
            _held.pop(self._identity, None)
            self._file.close()
            self._identity = None


# Locks held by this process. Opening and closing the file of a record lock would release the lock.
_held: WeakValueDictionary[tuple[int, int], RunLock] = WeakValueDictionary()


def _close_in_child() -> None:
    for lock in list(_held.values()):
        lock.close()


os.register_at_fork(after_in_child=_close_in_child)


def is_locked(path: Path) -> bool:
    """Returns whether a process, possibly this one, is training in a run directory."""
    files = RunFiles(path)
    found = files.status(_NAME)
    if found is None:
        return False
    if _identity(found) in _held:
        return True
    try:
        with files.open(_NAME) as file:
            return _is_taken(file)
    except (OSError, ValueError):
        return False


def _take(file: FileIO) -> None:
    """Locks a file for this process, or does nothing if the process already holds the lock.

    Raises:
        BlockingIOError, PermissionError: If another process holds the lock.
    """
    if _OPEN_FILE_LOCKS:
        try:
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, 0, 0, 0, 0))
            return
        except OSError as error:
            if error.errno != errno.EINVAL:  # raised by file systems without such locks
                raise
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_taken(file: BufferedReader) -> bool:
    if _OPEN_FILE_LOCKS:
        with suppress(OSError):  # raised by file systems without such locks
            asked = struct.pack(_FLOCK, fcntl.F_WRLCK, 0, 0, 0, 0)
            answer = fcntl.fcntl(file, fcntl.F_OFD_GETLK, asked)
            return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)
    try:
        fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


def _is_dead(holder: str) -> bool:
    """Returns whether the holder named in a lock file ran on this machine and is dead."""
    named = _HOLDER.fullmatch(holder)
    if named is None or named[2] != socket.gethostname():
        return False
    try:
        os.kill(int(named[1]), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def lock_for_child(path: Path) -> FileIO:
    """Locks a file for a child process that is about to start, until that process ends.

    This is an `flock` lock: all processes that inherit the open file hold it, until the last of
    them closes the file or dies. It covers the seconds until the child locks its run directory.

    Args:
        path: The lock file, created if needed. Its content is irrelevant.

    Returns:
        The open file. Pass its descriptor to the child, then close it here.

    Raises:
        OSError: If another process holds the lock, or the file cannot be opened.
    """
    file = RunFiles(path.parent).open_to_write(path.name, os.O_CREAT)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise OSError(errno.EBUSY, "another command is starting this run", str(path)) from error
    except OSError:  # raised by file systems without such locks
        pass
    return file


def is_locked_for_child(path: Path) -> bool:
    """Returns whether a process started with `lock_for_child` is still alive."""
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
