"""The three ways of running a train body: as Python, as a graph, as one XLA program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


def check_finite(metrics: Mapping[str, np.ndarray], numbers: Mapping[str, np.ndarray]) -> None:
    """Refuses metrics that are not finite.

    XLA drops assertions silently, so the check is made here.

    Args:
        metrics: For each name a value per update.
        numbers: The numbers of these updates.

    Raises:
        FloatingPointError: Naming the first update in which a metric was not finite.
    """
    bad = [
        (numbers[name][place], name, values[place])
        for name, values in metrics.items()
        for place in np.flatnonzero(~np.isfinite(values))[:1]
    ]
    if bad:
        number, name, value = min(bad, key=lambda each: each[0])
        raise FloatingPointError(
            f"{name} became {value} in update {number}: lower the learning rates, or scale the "
            "rewards"
        )
