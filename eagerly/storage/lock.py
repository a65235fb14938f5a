"""One process per run directory."""

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
# Locks of an open file description. They are Linux's; macOS keeps its own for itself.
_OPEN_FILE_LOCKS = sys.platform == "linux" and hasattr(fcntl, "F_OFD_SETLK")
_FLOCK = "hhqqi"  # struct flock of Linux: type, whence, start, length (0: all), process
_HOLDER = re.compile(r"process (\d{1,9}) on (.*)")


class RunLock:
    """Keeps a run directory for this process, until it is closed or the process is dead.

    On Linux it is a lock of the open file description, which the process keeps when it opens and
    closes the file again, for example to copy the run directory. Forked children close the
    description, because one that keeps it would keep the lock after the death of this process. A
    child that C code forks cannot do so; a message then reports that the holder is dead.

    Elsewhere it is a record lock (POSIX `fcntl`). No child inherits it, but the process loses it
    when it closes any descriptor of the file; `check` takes it again.

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
        _held[self._identity] = self
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
            _take(file)
        except (BlockingIOError, PermissionError) as error:
            holder = os.pread(file.fileno(), 200, 0).decode(errors="replace").strip()
            if _is_dead(holder):
                raise RunError(
                    f"{self._path} is locked, although its holder is dead ({holder}): a process "
                    f"that it started keeps the lock. End that (lsof {self._path / _NAME} lists "
                    "it), or choose another --run-dir"
                ) from error
            raise RunError(
                f"{self._path} is being trained by another process "
                f"({holder or 'which just begins'}): stop that, or choose another --run-dir"
            ) from error

    def check(self) -> None:
        """Checks that the run directory is still the one that was locked, and takes the lock again.

        Raises:
            OSError: If it has vanished, another one stands in its place, the lock was removed, so
                that a second process could take it, or another process holds it by now.
        """
        found = self._files.status(_NAME)
        if found is None:
            here = self._path.is_dir()
            what = "its lock was removed" if here else "the run directory has vanished"
            raise OSError(errno.ENOENT, what, str(self._path))
        if self._file is None or _identity(found) != self._identity:
            raise OSError(f"{self._path} is no longer the directory that was opened")
        try:
            _take(self._file)
        except (BlockingIOError, PermissionError) as error:
            what = "another process trains in this run directory by now"
            raise OSError(errno.EBUSY, what, str(self._path)) from error

    def __del__(self) -> None:
        """Frees the run directory where it was forgotten."""
        self.close()

    def close(self) -> None:
        """Frees the run directory."""
        if self._identity and self._file:
            _held.pop(self._identity, None)
            self._file.close()
            self._identity = None


# Those of this process: it must not open and close the file of a record lock.
_held: WeakValueDictionary[tuple[int, int], RunLock] = WeakValueDictionary()


def _close_in_child() -> None:
    for lock in list(_held.values()):
        lock.close()


os.register_at_fork(after_in_child=_close_in_child)


def is_locked(path: Path) -> bool:
    """Returns whether a process trains in a run directory now, this one included."""
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
    """Locks a file for this process; a lock that it has stays.

    Raises:
        BlockingIOError, PermissionError: If another process has it.
    """
    if _OPEN_FILE_LOCKS:
        try:
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, 0, 0, 0, 0))
            return
        except OSError as error:
            if error.errno != errno.EINVAL:  # of a file system without such locks
                raise
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_taken(file: BufferedReader) -> bool:
    if _OPEN_FILE_LOCKS:
        with suppress(OSError):  # of a file system without such locks
            asked = struct.pack(_FLOCK, fcntl.F_WRLCK, 0, 0, 0, 0)
            answer = fcntl.fcntl(file, fcntl.F_OFD_GETLK, asked)
            return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)
    try:
        fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


def _is_dead(holder: str) -> bool:
    """Returns whether the process that a lock names ran on this machine and is dead."""
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
