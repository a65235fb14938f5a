"""Keeping TensorFlow's start-up messages off the screen."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_tensorflow() -> Iterator[None]:
    """Holds stderr back while TensorFlow is imported and looks for devices.

    `TF_CPP_MIN_LOG_LEVEL` alone does not silence its first lines. What was held back is printed
    if the import fails, also where it ends the process (a build for another processor aborts):
    a helper process holds it. A level that the user has set is respected, and then nothing is
    held.
    """
    if "TF_CPP_MIN_LOG_LEVEL" in os.environ or "tensorflow" in sys.modules:
        yield
        return
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    sys.stderr.flush()
    screen = os.dup(2)
    held_end, held = os.pipe()
    verdict_end, verdict = os.pipe()
    helper = os.fork()
    if helper == 0:
        os.close(held)
        os.close(verdict)
        _hold(held_end, verdict_end, screen)
    os.close(held_end)
    os.close(verdict_end)
    os.dup2(held, 2)
    os.close(held)
    try:
        yield
        import tensorflow as tf

        tf.config.list_physical_devices()
        os.write(verdict, b"good")
    finally:
        os.dup2(screen, 2)  # the helper now sees the end of what it holds
        os.close(screen)
        os.close(verdict)
        os.waitpid(helper, 0)


def _hold(held_end: int, verdict_end: int, screen: int) -> None:
    """Reads until the writer has ended; prints it unless the verdict was good. Never returns."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    held = b"".join(iter(lambda: os.read(held_end, 65536), b""))
    if not os.read(verdict_end, 4):
        os.write(screen, held)
    os._exit(0)
