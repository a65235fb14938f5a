"""Counts updates, for learning-rate schedules and for freezing quantisation ranges."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf


class Clock:
    """Says how many updates were made, to what was built before any of them.

    Within an update it is a tensor of the program that is traced, so that one program serves all
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
        """Says which update is under way, by its number from 1 on."""
        self._update = update
        try:
            yield
        finally:
            self._update = None

    def passed(self) -> Any:
        """Returns how many updates were made before the one that is under way, or until now."""
        if self._update is not None:
            return self._update - 1
        return 0 if self._counter is None else self._counter.value()
