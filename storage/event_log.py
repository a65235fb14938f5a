"""A TensorBoard event file that a full disk neither tears nor thins out."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import tensorflow as tf

from eagerly.agents.persistence import os_error
from eagerly.storage.files import RunFiles, event_files


class EventLog:
    """Writes points of curves; those that cannot be written wait until they can.

    A `tf.summary` writer that met a full disk leaves half a record, and what follows one cannot be
    read. The file is cut back to its last whole record then, and a new file takes over.

    Args:
        path: Where event files are made.
    """

    def __init__(self, path: Path) -> None:
        self._files = RunFiles(path)
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._writer: tf.summary.SummaryWriter | None = None
        self._others: set[str] = set()
        self._whole: dict[str, int] = {}

    def add(self, step: int, emit: Callable[[], None]) -> None:
        """Writes a point, now or as soon as there is space.

        Args:
            step: Its step.
            emit: Calls `tf.summary` functions, with values that will not change any more.
        """
        self._waiting.append((step, emit))
        with suppress(OSError):
            self._write()

    def flush(self) -> list[str]:
        """Puts every point on disk and returns the names of all event files.

        Raises:
            OSError: If one cannot be written; it goes on waiting.
        """
        self._write()
        return event_files(self._files)

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
                    self._others = set(event_files(self._files))
                    # TensorFlow opens it by its path: no link can wait under a name of chance.
                    self._writer = tf.summary.create_file_writer(
                        str(self._files.path), filename_suffix=f".{secrets.token_hex(8)}"
                    )
                with self._writer.as_default(step=step):  # flushes at its end
                    emit()
            except tf.errors.OpError as error:
                self._abandon_file()
                raise os_error(error) from error
            self._waiting.popleft()
            self._whole = {name: self._files.size(name) for name in self._own_files()}

    def _abandon_file(self) -> None:
        self._close_writer()  # first, because it still tries to write
        for name in self._own_files():
            with suppress(OSError):
                if self._whole.get(name):
                    self._files.cut(name, self._whole[name])
                else:
                    self._files.remove(name)
        self._whole = {}

    def _close_writer(self) -> None:
        if self._writer is not None:
            with suppress(tf.errors.OpError):
                self._writer.close()
            self._writer = None

    def _own_files(self) -> list[str]:
        return [name for name in event_files(self._files) if name not in self._others]
