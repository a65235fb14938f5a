"""Append-only files whose records a full disk neither truncates nor loses."""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path

from eagerly.storage.files import RunFiles


class AppendLog:
    """Appends records to a file and buffers those that cannot be written yet.

    Args:
        path: The file, created with the first record.
    """

    def __init__(self, path: Path) -> None:
        self._files, self._name = RunFiles(path.parent), path.name
        self._whole = self._files.size(path.name)
        self._waiting = b""

    @property
    def size(self) -> int:
        """The size in bytes, including buffered records."""
        return self._whole + len(self._waiting)

    @property
    def is_empty(self) -> bool:
        """Returns whether there are no records, written or buffered."""
        return not self.size

    def append(self, record: bytes) -> None:
        """Appends a record. If writing fails, it is buffered until the next record or `flush`."""
        self._waiting += record
        with suppress(OSError):
            self.flush()

    def flush(self) -> None:
        """Writes all buffered records.

        Raises:
            OSError: If the file was truncated or writing fails. After a failed write, the partial
                data is cut off and the records stay buffered.
        """
        size = self._files.size(self._name)
        if size < self._whole:
            path = str(self._files.path / self._name)
            raise OSError(errno.EIO, f"was truncated by {self._whole - size} bytes", path)
        if size > self._whole:  # partial data of a failed write could not be cut off then
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
        """Writes all buffered records and syncs the file and its directory to disk.

        Raises:
            OSError: If writing or syncing fails; see `flush`.
        """
        self.flush()
        if self._whole:
            self._files.sync(self._name)
            self._files.sync_folder()

    def close(self) -> None:
        """Writes buffered records if possible."""
        with suppress(OSError):
            self.flush()
