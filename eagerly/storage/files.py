"""The files of a run directory: opened without following a link, waiting for a pipe or sharing.

A run directory may come from anyone. What is read, written, cut or removed through `RunFiles` lies
below the directory itself: no component of a name may be a symbolic link, and a file that has
other names, too (hard links), is copied before it is changed. The run directory as a whole may be
reached through links.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader, FileIO, UnsupportedOperation
from pathlib import Path
from typing import Any

_DESCRIPTORS = Path("/proc/self/fd")  # on Linux: leads to an open directory, whatever its path
_CHUNK = 2**20
_DEPTH = 8  # of folders that runs are looked for in
_NO_FILE = "is not a file, but a link, a pipe or a folder"
LINK = "is a link: link the whole run directory instead"


class RunFiles:
    """The files of one run directory, by names relative to it, with slashes.

    A method raises an OSError if a folder on the way is a link, or if the system refuses; opening
    a link, a pipe, a folder or a device raises `io.UnsupportedOperation`, which is a
    ValueError, too.

    Args:
        path: The run directory. It need not exist yet.
        mode: Permissions of files that it creates, before the umask.

    Attributes:
        path: The same.
    """

    def __init__(self, path: Path, *, mode: int = 0o644) -> None:
        self.path, self._mode = path, mode

    # --- reading ------------------------------------------------------------------------------

    def open(self, name: str) -> BufferedReader:
        """Opens a file to be read."""
        return os.fdopen(self._opened(name, os.O_RDONLY), "rb")

    def open_to_write(self, name: str, flags: int = 0) -> FileIO:
        """Opens a file to be read and written, unbuffered."""
        return os.fdopen(self._opened(name, os.O_RDWR | flags), "wb", buffering=0)

    def _opened(self, name: str, flags: int) -> int:
        folder, _, last = name.rpartition("/")
        # Without blocking: a pipe would keep whoever opens it waiting for its other end.
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
        """Whether a file stands there, and not a link to one, a pipe or a directory."""
        found = self.status(name)
        return found is not None and stat.S_ISREG(found.st_mode)

    def size(self, name: str) -> int:
        """Returns the size of a file in bytes, 0 where there is none."""
        found = self.status(name)
        return found.st_size if found and stat.S_ISREG(found.st_mode) else 0

    def described(self, name: str) -> dict[str, Any]:
        """Returns the size and the SHA-256 of a file."""
        with self.open(name) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return {"bytes": file.tell(), "sha256": digest}

    def names(self, folder: str = "") -> list[str]:
        """Lists what stands in a folder but folders, sorted, each name with that of the folder.

        Links and pipes are listed, too: they can be removed. Without a folder there are none.
        """
        return [name for name, found in self._listed(folder) if not stat.S_ISDIR(found.st_mode)]

    def folders(self, folder: str = "") -> list[str]:
        """Lists the folders in a folder, sorted, each name with that of the folder; no links."""
        return [name for name, found in self._listed(folder) if stat.S_ISDIR(found.st_mode)]

    def check_folder(self, name: str) -> None:
        """Refuses a link, or anything but a folder, in the place of a folder; none is fine."""
        with suppress(FileNotFoundError), self._folder(name):
            pass

    @contextmanager
    def for_tensorflow(self, folder: str) -> Iterator[str]:
        """Gives a path to a folder, for libraries that open files by their path.

        It has no special characters: TensorFlow expands `[`, `*` and `?` in paths that it reads.
        On Linux it leads to the folder as it was opened here, also if a component of its path is
        replaced by a link meanwhile. Elsewhere that much of a race remains.
        """
        with self._folder(folder) as at:
            if _DESCRIPTORS.is_dir():
                yield str(_DESCRIPTORS / str(at))
                return
            with tempfile.TemporaryDirectory(prefix="eagerly-") as private:
                link = Path(private, "folder")
                link.symlink_to((self.path / folder).resolve(), target_is_directory=True)
                yield str(link)

    # --- writing ------------------------------------------------------------------------------

    def write(self, name: str, chunks: Iterable[Any]) -> dict[str, Any]:
        """Writes a file so that a reader sees the old one or the new one; durable when it returns.

        Args:
            name: The file, replaced if it is there.
            chunks: Its content, objects that hold bytes.

        Returns:
            Its size and checksum, as `described` gives them.
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
        """Appends to a file, which is made if needed; an error may leave a part of the content."""
        self.own(name)
        with self.open_to_write(name, os.O_APPEND | os.O_CREAT) as file:
            _write_all(file, content)

    def cut(self, name: str, length: int) -> None:
        """Shortens a file."""
        self.own(name, length)
        with self.open_to_write(name) as file:
            os.ftruncate(file.fileno(), length)

    def own(self, name: str, length: int | None = None) -> None:
        """Makes sure that a file has no other name (hard link), by copying one that has.

        Args:
            name: The file; nothing happens where there is none.
            length: How many of its bytes are needed; None for all.
        """
        found = self.status(name)
        if found and stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
            with self.open(name) as file:
                self.write(name, _chunks(file, found.st_size if length is None else length))

    def sync(self, name: str) -> None:
        """Makes the content of a file durable."""
        with self.open(name) as file:
            os.fsync(file.fileno())

    def sync_folder(self, name: str = "") -> None:
        """Makes the names in a folder durable."""
        with self._folder(name) as at:
            os.fsync(at)

    def make_folder(self, name: str, *, is_new: bool = False) -> None:
        """Makes a folder in one that is there; nothing but a folder may stand in its place.

        Raises:
            FileExistsError: If it has to be new and is not.
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
        """Removes a file, a link or a pipe; nothing happens where there is none."""
        folder, _, last = name.rpartition("/")
        with suppress(FileNotFoundError), self._folder(folder) as at:
            os.unlink(last, dir_fd=at)

    def remove_folder(self, name: str) -> None:
        """Removes a folder with all that is in it, or whatever stands there; of a link itself."""
        outer, _, last = name.rpartition("/")
        found = self.status(name)
        if found is None:
            return
        if not stat.S_ISDIR(found.st_mode):
            self.remove(name)
            return
        with self._folder(outer) as at:
            try:
                shutil.rmtree(last, dir_fd=at)  # which follows no links either
            except RecursionError as error:
                path = str(self.path / name)
                raise OSError(errno.ELOOP, "folders are nested too deeply", path) from error

    # --- how ----------------------------------------------------------------------------------

    @contextmanager
    def _folder(self, name: str) -> Iterator[int]:
        """Opens a folder, component by component, and gives its descriptor."""
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
        """Returns what stands there, of a link itself; None where nothing does."""
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
                with suppress(FileNotFoundError):  # removed meanwhile
                    status = os.stat(name, dir_fd=at, follow_symlinks=False)
                    found.append((before + name, status))
        return found


def run_directories(folder: Path) -> list[Path]:
    """Lists the run directories in a folder and its folders, sorted; or the one that it is itself.

    Links are followed in the folder itself, where people keep some, and not below.
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
