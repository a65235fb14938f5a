"""A file that is appended to, which a full disk neither tears nor thins out."""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path

from eagerly.storage.files import RunFiles


class AppendLog:
    """Appends records to a file; those that cannot be written wait until they can.

    Args:
        path: The file; it is made with the first record.
    """

    def __init__(self, path: Path) -> None:
        self._files, self._name = RunFiles(path.parent), path.name
        self._whole = self._files.size(path.name)
        self._waiting = b""

    @property
    def size(self) -> int:
        """Bytes in the file, and those that wait."""
        return self._whole + len(self._waiting)

    @property
    def is_empty(self) -> bool:
        """Whether the file has no record, and none waits."""
        return not self.size

    def append(self, record: bytes) -> None:
        """Appends a record; where there is no space it waits for the next one, or for `flush`."""
        self._waiting += record
        with suppress(OSError):
            self.flush()

    def flush(self) -> None:
        """Writes the records that wait.

        Raises:
            OSError: If they cannot be written; none of them is lost, and the file stays whole.
        """
        size = self._files.size(self._name)
        if size < self._whole:
            path = str(self._files.path / self._name)
            raise OSError(errno.EIO, f"has lost {self._whole - size} bytes", path)
        if size > self._whole:  # it could not be cut back when it was torn
            self._files.cut(self._name, self._whole)
        if not self._waiting:
            return
        try:
            self._files.append(self._name, self._waiting)
        except OSError:
            with suppress(OSError):
                self._files.cut(self._name, self._whole)
            raise
        self._whole += len(self._waiting)
        self._waiting = b""

    def sync(self) -> None:
        """Writes the records that wait, and makes all of them durable.

        Raises:
            OSError: If they cannot be written; none of them is lost, and the file stays whole.
        """
        self.flush()
        if self._whole:
            self._files.sync(self._name)
            self._files.sync_folder()

    def close(self) -> None:
        """Writes what still waits, if it can be."""
        with suppress(OSError):
            self.flush()
