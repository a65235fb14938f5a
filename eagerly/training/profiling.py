"""A profiler trace of the train body, for TensorBoard."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import tensorflow as tf

from eagerly.storage.files import RunFiles


class Profile:
    """Traces some calls of the train body; not the first, which compiles.

    Args:
        path: The run directory; the trace goes to `plugins/profile` in it.
        calls: How many calls are traced; 0 for none.
    """

    def __init__(self, path: Path, calls: int) -> None:
        self._files = RunFiles(path)
        self._first, self._last = 2, 1 + calls
        self._made = 0
        self._running = False

    @contextmanager
    def call(self) -> Iterator[None]:
        """Surrounds one call."""
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
        """Writes what was traced, also if the calls were fewer."""
        if self._running:
            tf.profiler.experimental.stop()
            self._running = False
