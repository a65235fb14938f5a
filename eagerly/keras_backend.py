"""Selects Keras's TensorFlow backend, whatever the user's settings of Keras are."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_VARIABLE = "KERAS_BACKEND"
_lock = threading.Lock()
_entered = 0  # nesting depth, over all threads
_chosen: str | None = None  # the value of the user


@contextmanager
def tensorflow_backend() -> Iterator[None]:
    """Makes Keras select the TensorFlow backend if it is first imported inside the `with` block.

    Keras reads the environment variable `KERAS_BACKEND`, otherwise `keras.json`, on its first
    import, which may be part of the import of TensorFlow. Both stay unchanged.
    """
    global _entered, _chosen
    with _lock:
        if not _entered:
            _chosen = os.environ.get(_VARIABLE)
        _entered += 1
        os.environ[_VARIABLE] = "tensorflow"
    try:
        yield
    finally:
        with _lock:
            _entered -= 1
            if not _entered:
                os.environ.pop(_VARIABLE, None)
                if _chosen is not None:
                    os.environ[_VARIABLE] = _chosen


def check_backend() -> None:
    """Imports Keras with the TensorFlow backend, if this is its first import.

    Raises:
        ImportError: If TensorFlow or Keras was imported before with another backend.
    """
    with tensorflow_backend():
        try:
            import keras

            backend = keras.config.backend()
        except ModuleNotFoundError as error:
            backend = f"a backend that needs {error.name}"
    if backend != "tensorflow":
        home = Path(os.environ.get("KERAS_HOME", "~/.keras"))
        chosen = os.environ.get(_VARIABLE)
        place = f"{_VARIABLE}={chosen}" if chosen else f"the file {home / 'keras.json'}"
        raise ImportError(
            f"eagerly needs Keras's tensorflow backend, but Keras was imported with {backend}, as "
            f"set by {place}: set KERAS_BACKEND=tensorflow, or import eagerly first"
        )
