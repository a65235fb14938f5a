"""The three ways of running a train body: as Python, as a graph, as one XLA program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import tensorflow as tf

MODES = ("eager", "graph", "xla")


def compiled(body: Callable[..., Any], mode: str) -> Callable[..., Any]:
    """Prepares a train body for `mode`; in "eager" it stays the Python function it is.

    In "eager" every operation runs at once, so a debugger steps through the body with real
    tensors. "graph" traces it once per input shape; "xla" also compiles it, whole.
    """
    if mode == "eager":
        return body
    return cast(Callable[..., Any], tf.function(body, jit_compile=mode == "xla"))
