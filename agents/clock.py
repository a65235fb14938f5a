"""The update counter, for learning-rate schedules and for freezing quantization ranges."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf


class Clock:
    """Provides the update count to components that are built before the first update.

    Within an update, the count is a tensor of the traced program, so that one program serves all
    updates.
    """

    def __init__(self) -> None:
        self._update: tf.Tensor | None = None
        self._counter: tf.Variable | None = None

    def count_with(self, counter: tf.Variable) -> None:
        """Sets the counter that `passed` reads between updates."""
        self._counter = counter

    @contextmanager
    def during(self, update: tf.Tensor) -> Iterator[None]:
        """Sets the current update, numbered from 1, within the context."""
        self._update = update
        try:
            yield
        finally:
            self._update = None

    def passed(self) -> Any:
        """Returns the number of completed updates, not counting the one in progress."""
        if self._update is not None:
            return self._update - 1
        return 0 if self._counter is None else self._counter.value()
