"""A TensorBoard event file that a full disk neither tears nor thins out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import tensorflow as tf

from eagerly.agents.persistence import os_error
from eagerly.training.files import cut

_PATTERN = "events.out.tfevents.*"


class EventLog:
    """Writes points of curves; those that cannot be written wait until they can.

    A `tf.summary` writer that met a full disk leaves half a record, and what follows one cannot be
    read. The file is cut back to its last whole record then, and a new file takes over.

    Args:
        path: Where event files are made.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._writer: tf.summary.SummaryWriter | None = None
        self._others: set[Path] = set()
        self._whole: dict[Path, int] = {}

    def add(self, step: int, emit: Callable[[], None]) -> None:
        """Writes a point, now or as soon as there is space.

        Args:
            step: Its step.
            emit: Calls `tf.summary` functions, with values that will not change any more.
        """
        self._waiting.append((step, emit))
        with suppress(OSError):
            self._write()

    def flush(self) -> list[Path]:
        """Puts every point on disk and returns all event files.

        Raises:
            OSError: If one cannot be written; it goes on waiting.
        """
        self._write()
        return self._files()

    def close(self) -> None:
        """Writes what still waits, if it can be, and closes the file."""
        with suppress(OSError):
            self._write()
        self._close_writer()

    def _write(self) -> None:
        while self._waiting:
            step, emit = self._waiting[0]
            try:
                if self._writer is None:
                    self._others = set(self._files())
                    self._writer = tf.summary.create_file_writer(str(self._path))
                with self._writer.as_default(step=step):  # flushes at its end
                    emit()
            except tf.errors.OpError as error:
                self._abandon_file()
                raise os_error(error) from error
            self._waiting.popleft()
            self._whole = {file: file.stat().st_size for file in self._own_files()}

    def _abandon_file(self) -> None:
        self._close_writer()  # first, because it still tries to write
        for file in self._own_files():
            with suppress(OSError):
                if self._whole.get(file):
                    cut(file, self._whole[file])
                else:
                    file.unlink()
        self._whole = {}

    def _close_writer(self) -> None:
        if self._writer is not None:
            with suppress(tf.errors.OpError):
                self._writer.close()
            self._writer = None

    def _own_files(self) -> list[Path]:
        return [file for file in self._files() if file not in self._others]

    def _files(self) -> list[Path]:
        return sorted(self._path.glob(_PATTERN))
