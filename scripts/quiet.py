"""Keeping TensorFlow's start-up messages off the screen."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_tensorflow() -> Iterator[None]:
    """Holds stderr back while TensorFlow is imported and looks for devices.

    `TF_CPP_MIN_LOG_LEVEL` alone does not silence its first lines. What was held back is printed
    if the import fails. A level that the user has set is respected, and then nothing is held.
    """
    if "TF_CPP_MIN_LOG_LEVEL" in os.environ or "tensorflow" in sys.modules:
        yield
        return
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    sys.stderr.flush()
    screen = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
            import tensorflow as tf

            tf.config.list_physical_devices()
        except BaseException:
            held.seek(0)
            os.write(screen, held.read())
            raise
        finally:
            os.dup2(screen, 2)
            os.close(screen)
