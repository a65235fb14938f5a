"""The three ways of running a train body: as Python, as a graph, as one XLA program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import tensorflow as tf


def compiled(body: Callable[..., Any], mode: str) -> Callable[..., Any]:
    """Prepares a train body for `mode`; in "eager" it stays the Python function it is.

    In "eager" every operation runs at once, so a debugger steps through the body with real
    tensors. "graph" traces it once per input shape; "xla" also compiles it, whole.
    """
    if mode == "eager":
        return body
    return cast(Callable[..., Any], tf.function(body, jit_compile=mode == "xla"))


def named_metrics(names: Sequence[str], history: np.ndarray, first: int) -> dict[str, np.ndarray]:
    """Splits what a train body returned by name, and refuses what is not finite.

    XLA drops assertions silently, so the check is made here.

    Args:
        names: M names.
        history: `[K, M]`, one row per update.
        first: Number of the first of these updates.

    Raises:
        FloatingPointError: Naming the metric and the first update in which it was not finite.
    """
    for row, name in np.argwhere(~np.isfinite(history))[:1]:
        raise FloatingPointError(
            f"{names[name]} became {history[row, name]} in update {first + row}: lower the "
            "learning rates, or scale the rewards"
        )
    return dict(zip(names, history.T, strict=True))
