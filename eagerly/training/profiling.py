"""Profiles the train body for TensorBoard."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import tensorflow as tf

from eagerly.storage.files import RunFiles


class Profile:
    """Traces calls of the train body, starting with the second because the first one compiles.

    Args:
        path: The run directory. The trace is written to its `plugins/profile` folder.
        calls: How many calls to trace; 0 for none.
    """

    def __init__(self, path: Path, calls: int) -> None:
        self._files = RunFiles(path)
        self._first, self._last = 2, 1 + calls
        self._made = 0
        self._running = False

    @contextmanager
    def call(self) -> Iterator[None]:
        """Wraps one call of the train body."""
        self._made += 1
        if self._made == self._first <= self._last:
            for folder in ("plugins", "plugins/profile"):
                self._files.check_folder(folder)
            tf.profiler.experimental.start(str(self._files.path))
            self._running = True
        yield
        if self._made == self._last:
            self.close()

    def close(self) -> None:
        """Writes the trace, even if fewer calls were made than requested."""
        if self._running:
            tf.profiler.experimental.stop()
            self._running = False
