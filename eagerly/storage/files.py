"""Safe access to run directory files, without following links or blocking on pipes.

A run directory may come from anyone. Everything that `RunFiles` reads, writes, truncates or removes
lies inside the directory. No component of a name may be a symbolic link, and a file with other hard
links is copied before it is modified. The run directory itself may be reached through links.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedReader, FileIO, UnsupportedOperation
from pathlib import Path
from typing import Any

_DESCRIPTORS = Path("/proc/self/fd")  # on Linux; its entries refer to open directories
_CHUNK = 2**20
_DEPTH = 8  # levels searched for run directories
_NO_FILE = "must be a regular file, not a link, pipe or directory"
RUNS = Path("runs")  # default folder of run directories
LINK = "is a symbolic link: link the whole run directory instead"


class RunFiles:
    """The files of a run directory, addressed by relative names with slashes.

    Methods raise an OSError if a directory in the name is a link, or if a system call fails.
    Opening a link, pipe, directory or device raises `io.UnsupportedOperation`, which is also a
    ValueError.

    Args:
        path: The run directory. It need not exist yet.
        mode: Permissions of new files, before the umask.

    Attributes:
        path: The run directory.
    """

    def __init__(self, path: Path, *, mode: int = 0o644) -> None:
        self.path, self._mode = path, mode

    # --- reading ------------------------------------------------------------------------------

    def open(self, name: str) -> BufferedReader:
        """Opens a file for reading."""
        return os.fdopen(self._opened(name, os.O_RDONLY), "rb")

    def open_to_write(self, name: str, flags: int = 0) -> FileIO:
        """Opens a file for unbuffered writing. The descriptor also permits reading."""
        return os.fdopen(self._opened(name, os.O_RDWR | flags), "wb", buffering=0)

    def _opened(self, name: str, flags: int) -> int:
        folder, _, last = name.rpartition("/")
        # Non-blocking, because opening a pipe would otherwise wait for its other end.
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with self._folder(folder) as at:
            try:
                descriptor = os.open(last, flags, self._mode, dir_fd=at)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
                    raise UnsupportedOperation(f"{name} {_NO_FILE}") from error
                error.filename = str(self.path / name)
                raise
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise UnsupportedOperation(f"{name} {_NO_FILE}")
        return descriptor

    def is_file(self, name: str) -> bool:
        """Returns whether `name` is a regular file, not a link, pipe or directory."""
        found = self.status(name)
        return found is not None and stat.S_ISREG(found.st_mode)

    def size(self, name: str) -> int:
        """Returns the size of a file in bytes, or 0 if it does not exist."""
        found = self.status(name)
        return found.st_size if found and stat.S_ISREG(found.st_mode) else 0

    def described(self, name: str) -> dict[str, Any]:
        """Returns the size and SHA-256 of a file."""
        with self.open(name) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return {"bytes": file.tell(), "sha256": digest}

    def names(self, folder: str = "") -> list[str]:
        """Returns the sorted names of everything in a directory except its subdirectories.

        Names include `folder`. Links and pipes are listed, because they can be removed. A missing
        directory counts as empty.
        """
        return [name for name, found in self._listed(folder) if not stat.S_ISDIR(found.st_mode)]

    def folders(self, folder: str = "") -> list[str]:
        """Returns the sorted names of subdirectories, without links. Names include `folder`."""
        return [name for name, found in self._listed(folder) if stat.S_ISDIR(found.st_mode)]

    def check_folder(self, name: str) -> None:
        """Validates that a directory, if it exists, is not a link or another kind of file.

        Raises:
            OSError: If `name` is a link or another kind of file.
        """
        with suppress(FileNotFoundError), self._folder(name):
            pass

    @contextmanager
    def for_tensorflow(self, folder: str) -> Iterator[str]:
        """Yields a path to a directory, for libraries that open files by path.

        The path has no special characters, because TensorFlow expands `[`, `*` and `?` in paths
        that it reads. On Linux, it refers to the directory opened here, even if a component of the
        original path is replaced by a link in the meantime. On other systems, this race
        condition remains.

        Raises:
            OSError, ValueError: In place of an error whose message contains that path. The new
                message contains the original path.
        """
        with self._folder(folder) as at, ExitStack() as opened:
            used = str(_DESCRIPTORS / str(at))
            if not _DESCRIPTORS.is_dir():
                private = opened.enter_context(tempfile.TemporaryDirectory(prefix="eagerly-"))
                link = Path(private, "folder")
                link.symlink_to((self.path / folder).resolve(), target_is_directory=True)
                used = str(link)
            try:
                yield used
            except Exception as error:  # TensorFlow has its own errors
                if used not in str(error):
                    raise
                known = str(self.path / folder)
                if isinstance(error, OSError) and error.strerror:
                    text = str(error.strerror).replace(used, known)
                    name = str(error.filename).replace(used, known) if error.filename else None
                    raise OSError(error.errno, text, name) from error
                raise ValueError(str(error).replace(used, known)) from error

    # --- writing ------------------------------------------------------------------------------

    def write(self, name: str, chunks: Iterable[Any]) -> dict[str, Any]:
        """Writes a file atomically and durably: readers see either the old or the new content.

        Args:
            name: The file, replaced if it exists.
            chunks: The new content as bytes-like objects.

        Returns:
            The size and checksum of the file, in the format of `described`.
        """
        folder, _, last = name.rpartition("/")
        temporary = name + ".tmp"
        digest, size = hashlib.sha256(), 0
        self.remove(temporary)
        try:
            with self.open_to_write(temporary, os.O_CREAT | os.O_EXCL) as file:
                for chunk in chunks:
                    _write_all(file, chunk)
                    digest.update(chunk)
                    size += memoryview(chunk).nbytes
                os.fsync(file.fileno())
            with self._folder(folder) as at:
                os.rename(f"{last}.tmp", last, src_dir_fd=at, dst_dir_fd=at)
        except (OSError, KeyboardInterrupt):
            with suppress(OSError):
                self.remove(temporary)
            raise
        self.sync_folder(folder)
        return {"bytes": size, "sha256": digest.hexdigest()}

    def append(self, name: str, content: bytes) -> None:
        """Appends to a file, creating it if needed. An error may leave part of `content` in it."""
        self.own(name)
        with self.open_to_write(name, os.O_APPEND | os.O_CREAT) as file:
            _write_all(file, content)

    def cut(self, name: str, length: int) -> None:
        """Truncates a file."""
        self.own(name, length)
        with self.open_to_write(name) as file:
            os.ftruncate(file.fileno(), length)

    def own(self, name: str, length: int | None = None) -> None:
        """Replaces a file that has other hard links with a copy.

        Args:
            name: The file, which may be missing.
            length: Number of bytes to copy; None for all.
        """
        found = self.status(name)
        if found and stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
            with self.open(name) as file:
                self.write(name, _chunks(file, found.st_size if length is None else length))

    def sync(self, name: str) -> None:
        """Syncs the content of a file to disk."""
        with self.open(name) as file:
            os.fsync(file.fileno())

    def sync_folder(self, name: str = "") -> None:
        """Syncs the entries of a directory to disk."""
        with self._folder(name) as at:
            os.fsync(at)

    def make_folder(self, name: str, *, is_new: bool = False) -> None:
        """Creates a directory, unless it exists. Its parent must exist.

        Raises:
            FileExistsError: If it exists although `is_new` is set.
            OSError: If a link or another kind of file has its name.
        """
        outer, _, last = name.rpartition("/")
        with self._folder(outer) as at:
            try:
                os.mkdir(last, dir_fd=at)
            except FileExistsError:
                if is_new:
                    raise
        self.check_folder(name)

    def remove(self, name: str) -> None:
        """Removes a file, link or pipe, if it exists."""
        folder, _, last = name.rpartition("/")
        with suppress(FileNotFoundError), self._folder(folder) as at:
            os.unlink(last, dir_fd=at)

    def remove_folder(self, name: str) -> None:
        """Removes a directory with its contents, or a file. Does not follow links."""
        outer, _, last = name.rpartition("/")
        found = self.status(name)
        if found is None:
            return
        if not stat.S_ISDIR(found.st_mode):
            self.remove(name)
            return
        with self._folder(outer) as at:
            try:
                shutil.rmtree(last, dir_fd=at)  # does not follow links either
            except RecursionError as error:
                path = str(self.path / name)
                raise OSError(errno.ELOOP, "directories are nested too deeply", path) from error

    # --- helpers ------------------------------------------------------------------------------

    @contextmanager
    def _folder(self, name: str) -> Iterator[int]:
        """Opens a directory component by component and yields its descriptor."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        at = os.open(self.path, flags)
        try:
            path = self.path
            for part in filter(None, name.split("/")):
                path /= part
                try:
                    inner = os.open(part, flags | os.O_NOFOLLOW, dir_fd=at)
                except OSError as error:
                    if error.errno in (errno.ELOOP, errno.ENOTDIR) and path.is_symlink():
                        raise OSError(errno.ELOOP, LINK, str(path)) from error
                    error.filename = str(path)
                    raise
                os.close(at)
                at = inner
            yield at
        finally:
            os.close(at)

    def status(self, name: str) -> os.stat_result | None:
        """Returns the status of a file without following links, or None if inaccessible."""
        folder, _, last = name.rpartition("/")
        try:
            with self._folder(folder) as at:
                return os.stat(last, dir_fd=at, follow_symlinks=False)
        except OSError:
            return None

    def _listed(self, folder: str) -> list[tuple[str, os.stat_result]]:
        before, found = f"{folder}/" if folder else "", []
        with suppress(FileNotFoundError, NotADirectoryError), self._folder(folder) as at:
            for name in sorted(os.listdir(at)):
                with suppress(FileNotFoundError):  # removed in the meantime
                    status = os.stat(name, dir_fd=at, follow_symlinks=False)
                    found.append((before + name, status))
        return found


def run_directories(folder: Path) -> list[Path]:
    """Returns the sorted run directories below a directory, or the directory if it is one itself.

    Links directly in the directory are followed, because users may collect links to runs there.
    Links in subdirectories are not followed.
    """
    if RunFiles(folder).is_file("config.json"):
        return [folder]
    found, left = [], [(folder, 0)]
    while left:
        outer, depth = left.pop()
        try:
            with os.scandir(outer) as entries:
                inner = [Path(e.path) for e in entries if e.is_dir(follow_symlinks=not depth)]
        except OSError:
            continue
        found += [path for path in inner if RunFiles(path).is_file("config.json")]
        if depth < _DEPTH:
            left += [(path, depth + 1) for path in inner if not path.is_symlink()]
    return sorted(found)


def _write_all(file: FileIO, content: Any) -> None:
    left = memoryview(content).cast("B")
    while left.nbytes:
        left = left[file.write(left) :]


def _chunks(file: BufferedReader, left: int) -> Iterator[bytes]:
    while left and (chunk := file.read(min(_CHUNK, left))):
        left -= len(chunk)
        yield chunk
