"""A fast function for one flat observation, with as few NumPy calls as possible."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .actions import Actions
from .observations import Observations
from .runtimes import to_numbers


def quick_path(
    observations: Observations,
    actions: Actions,
    model: dict[str, Any],
    runs: Any,
    check_finite: Callable[[np.ndarray, np.ndarray], None],
) -> Callable[[np.ndarray], np.ndarray] | None:
    """Returns a fast function of one flat observation `[O]`, or None if not applicable.

    It is equivalent to calling the policy, but requires flat actions and no recurrence.

    Args:
        observations: The layout of observations.
        actions: The layout of actions.
        model: The entry `model` of `policy.json`.
        runs: The runtime.
        check_finite: Raises the error for an observation and scores that are not finite.
    """
    flat = "Box" in actions.space and len(actions.space["Box"][0]) == 1
    if not observations.is_row or not flat or len(model["inputs"]) > 1:
        return None
    size, most = observations.size, observations.clip
    mean, scale = observations.moments or (np.zeros(size), np.ones(size))
    run = getattr(runs, "run", None) or (lambda given: runs([given])[0])
    if "scale" in model["inputs"][0]:
        return _on_integers(mean, scale, most, actions, model, run)
    given, zeros = np.empty((1, size), np.float32), np.zeros(actions.continuous, np.float32)
    center, half, low, high = actions.center, actions.half, actions.low, actions.high
    place, scaled, dtype = given[0], np.empty(size), actions.dtype
    # These bounds are arrays because ufuncs spend more time converting a Python number than
    # comparing with it.
    least, highest = np.full(size, -most), np.full(size, most)
    maximum, minimum, finite = np.maximum, np.minimum, math.isfinite

    def act(row: np.ndarray) -> np.ndarray:
        np.subtract(row, mean, scaled)
        np.multiply(scaled, scale, scaled)
        maximum(scaled, least, out=scaled)
        minimum(scaled, highest, out=scaled)
        place[...] = scaled
        scores = run(given)[0]
        if not finite(scores.dot(zeros)):
            check_finite(row, scores)
        found = half * scores
        found += center
        action = found.astype(dtype)
        maximum(action, low, out=action)
        return minimum(action, high, out=action)

    return act


def _on_integers(
    mean: np.ndarray,
    scale: np.ndarray,
    clip: float,
    actions: Actions,
    model: dict[str, Any],
    run: Any,
) -> Callable[[np.ndarray], np.ndarray] | None:
    spec, size, count = model["inputs"][0], len(mean), actions.continuous
    step, zero = spec["scale"], spec["zero_point"]
    if (-128 - zero) * step < -clip or (127 - zero) * step > clip:
        return None  # the grid extends beyond the clipping range
    # Fold the grid's scale and zero point into the observation's moments.
    mean, scale = mean - zero * step / scale, scale / step
    numbers = to_numbers(np.arange(-128, 128), model["outputs"][0])
    found = actions.to_environment(np.repeat(numbers[:, np.newaxis], count, axis=1)).T
    is_shared = bool((found == found[0]).all())  # all dimensions have equal bounds
    table = found[0] if is_shared else found.ravel()
    first = 128 if is_shared else np.arange(count) * 256 + 128
    # Move the action of output 0 to index 0. Negative outputs then index from the end, so that
    # no offset is needed.
    table = np.roll(table, -128) if is_shared else table
    take, index = table.take, np.empty(count, np.int64)
    scaled, zeros = np.empty(size), np.zeros(size)
    least, most = np.full(size, -128.0), np.full(size, 127.0)
    total = scaled.dot
    given = np.empty((1, size), np.int8)
    place, maximum, minimum, finite = given[0], np.maximum, np.minimum, math.isfinite
    subtract, multiply, rint = np.subtract, np.multiply, np.rint

    def act(row: np.ndarray) -> np.ndarray:
        subtract(row, mean, scaled)
        multiply(scaled, scale, scaled)
        rint(scaled, scaled)
        maximum(scaled, least, out=scaled)
        minimum(scaled, most, out=scaled)
        if not finite(total(zeros)):
            raise FloatingPointError(f"observation must be finite; got {row}")
        place[...] = scaled
        index[...] = run(given)[0]
        return take(index if is_shared else index + first)

    return act
