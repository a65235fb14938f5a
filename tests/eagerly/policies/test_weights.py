"""Loaded weights must have valid values and the shapes and dtype that the settings require."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from eagerly.policies.weights import check_weights
from tests.eagerly.export.drawn import EMBEDDING, actor, quantised

NETWORK = quantised(actor())


def _changed(name: str, **changes: Any) -> dict[str, np.ndarray]:
    values = NETWORK.weights[name].astype(changes.get("dtype", "float32"))
    values.flat[0] = changes.get("first", values.flat[0])
    return NETWORK.weights | {name: values}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_all_weights_must_have_the_required_dtype(dtype: str) -> None:
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
        ("quantization/low", {"first": 0.5}, "wider than 0; quantization/low is wrong"),
        ("quantization/high", {"first": -0.5}, "wider than 0; quantization/high is wrong"),
    ],
)
def test_wrong_dtypes_and_invalid_values_are_rejected(
    name: str, changes: dict[str, Any], message: str
) -> None:
    weights = _changed(name, **changes)
    check_weights(NETWORK.architecture, weights)  # without a dtype, checks only names and shapes
    with pytest.raises(ValueError, match=message):
        check_weights(NETWORK.architecture, weights, "float32")


def test_a_range_of_zero_width_is_rejected() -> None:
    weights = _changed("quantization/low", first=0.0)
    weights["quantization/high"] = weights["quantization/high"].copy()
    weights["quantization/high"][0] = 0.0
    with pytest.raises(ValueError, match="wider than 0; quantization/high is wrong"):
        check_weights(NETWORK.architecture, weights, "float32")


def test_missing_weights_are_rejected() -> None:
    weights = dict(NETWORK.weights)
    del weights["action/bias"]
    with pytest.raises(ValueError, match=r"action/bias is missing, expected \(2,\)"):
        check_weights(NETWORK.architecture, weights)


def test_weights_of_another_embedding_are_rejected() -> None:
    network = actor(encoder=EMBEDDING)
    other = dataclasses.replace(EMBEDDING, hidden_sizes=(16,))
    architecture = dataclasses.replace(network.architecture, encoder=other)
    with pytest.raises(ValueError, match=r"embedding_1/bias is \(12,\), expected \(6,\)"):
        check_weights(architecture, network.weights)
