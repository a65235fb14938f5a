"""Weights that are loaded are those of the settings, in their dtype, and are numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eagerly.policies.architecture import check_weights
from tests.export.drawn import actor, quantised

NETWORK = quantised(actor())


def _changed(name: str, **changes: Any) -> dict[str, np.ndarray]:
    values = NETWORK.weights[name].astype(changes.get("dtype", "float32"))
    values.flat[0] = changes.get("first", values.flat[0])
    return NETWORK.weights | {name: values}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_weights_of_one_dtype_are_taken(dtype: str) -> None:
    weights = {name: values.astype(dtype) for name, values in NETWORK.weights.items()}
    check_weights(NETWORK.architecture, weights, dtype)
    other = {"float32": "float64", "float64": "float32"}[dtype]
    with pytest.raises(ValueError, match=f"weights must be {other}; .* is {dtype}"):
        check_weights(NETWORK.architecture, weights, other)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("action/bias", {"dtype": "int8"}, "must be float32; action/bias is int8"),
        ("hidden_1/kernel", {"dtype": "float16"}, "must be float32; hidden_1/kernel is float16"),
        ("hidden_0/bias", {"first": np.nan}, "must be finite; hidden_0/bias has NaN or infinity"),
        ("quantization/high", {"first": np.inf}, "must be finite; quantization/high has NaN"),
        ("quantization/low", {"first": 0.5}, "hold 0 and more; quantization/low is wrong"),
        ("quantization/high", {"first": -0.5}, "hold 0 and more; quantization/high is wrong"),
    ],
)
def test_other_dtypes_and_numbers_that_are_none_are_refused(
    name: str, changes: dict[str, Any], message: str
) -> None:
    weights = _changed(name, **changes)
    check_weights(NETWORK.architecture, weights)  # shapes alone
    with pytest.raises(ValueError, match=message):
        check_weights(NETWORK.architecture, weights, "float32")


def test_a_range_of_nothing_is_refused() -> None:
    weights = _changed("quantization/low", first=0.0)
    weights["quantization/high"] = weights["quantization/high"].copy()
    weights["quantization/high"][0] = 0.0
    with pytest.raises(ValueError, match="hold 0 and more; quantization/high is wrong"):
        check_weights(NETWORK.architecture, weights, "float32")


def test_other_shapes_are_refused() -> None:
    weights = dict(NETWORK.weights)
    del weights["action/bias"]
    with pytest.raises(ValueError, match=r"action/bias is missing, expected \(2,\)"):
        check_weights(NETWORK.architecture, weights)
