"""Names of an actor's weights, and their validation against its architecture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from eagerly.policies.architecture import ActorArchitecture


def named(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Renames weights from their variable paths in a model to `layer/weight`.

    Raises:
        ValueError: If two weights would have the same name.
    """
    found = {"/".join(path.split("/")[-2:]): values for path, values in weights.items()}
    if len(found) < len(weights):
        raise ValueError(f"weights must have unique names; got {sorted(weights)}")
    return found


def check_weights(
    architecture: ActorArchitecture, weights: Mapping[str, Any], dtype: str | None = None
) -> None:
    """Validates that weights match an architecture.

    Args:
        architecture: The architecture.
        weights: Weights by `layer/weight`.
        dtype: Required dtype of all weights. If given, the values are also validated: weights must
            be finite, and quantization ranges must contain 0 and have a width above 0. None
            validates only names and shapes, which is cheap.

    Raises:
        ValueError: If the weights do not match. The message names the difference.
    """
    expected = architecture.shapes()
    given = {name: tuple(np.shape(values)) for name, values in weights.items()}
    if expected != given:
        name = min(n for n in expected | given if expected.get(n) != given.get(n))
        raise ValueError(
            f"weights must match the settings: {name} is {given.get(name, 'missing')}, "
            f"expected {expected.get(name, 'no such weight')}"
        )
    if dtype is not None:
        _check_numbers(weights, dtype)


def _check_numbers(weights: Mapping[str, Any], dtype: str) -> None:
    for name, values in weights.items():
        if values.dtype != dtype:
            raise ValueError(f"weights must be {dtype}; {name} is {values.dtype}")
        if not np.isfinite(values).all():
            raise ValueError(f"weights must be finite; {name} has NaN or infinity")
    if "quantization/low" in weights:
        low, high = (weights[f"quantization/{part}"] for part in ("low", "high"))
        for name, wrong in (("low", low > 0.0), ("high", high < 0.0), ("high", low == high)):
            if wrong.any():
                ranges = list(zip(low.tolist(), high.tolist(), strict=True))
                raise ValueError(
                    "ranges must contain 0 and be wider than 0; "
                    f"quantization/{name} is wrong in {ranges}"
                )
