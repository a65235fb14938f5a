"""A LiteRT file matches the NumPy actor; an int8 file matches the quantized actor."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eagerly.export import litert
from eagerly.export.calibration import calibrated
from eagerly.policies.architecture import DENSE
from eagerly.policies.integer_grids import TANH_SCALE, grid, integers
from eagerly.policies.network import ActorNetwork
from tests.eagerly.export.actors import (
    ACTORS,
    CONTINUED,
    Named,
    check_equal,
    in_numpy,
    inputs_of,
    network_of,
    played,
)
from tests.eagerly.export.drawn import EMBEDDING, actor, quantised

needs_litert = pytest.mark.skipif(
    find_spec("ai_edge_litert") is None, reason="needs ai-edge-litert: `make test-export`"
)


def _acting(folder: Path, found: dict[str, Any], **settings: Any) -> Callable[[Named], Named]:
    """Returns a function that runs the model file. `found` is the result of `convert`."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(folder / "model.tflite"), **settings)
    interpreter.allocate_tensors()

    def act(given: Named) -> Named:
        for each in found["inputs"]:
            interpreter.set_tensor(each["index"], given[each["name"]])
        interpreter.invoke()
        return {each["name"]: interpreter.get_tensor(each["index"]) for each in found["outputs"]}

    return act


def _quantized(space: str) -> tuple[ActorNetwork, np.ndarray]:
    network = network_of(space, (("normalize_observations", True),))
    random = np.random.default_rng(0)
    rows = random.normal(size=(2000, network.architecture.visible)).astype(np.float32)
    quantized = calibrated(network, rows)
    return quantized, random.uniform(-1.1, 1.1, rows.shape).astype(np.float32)


@pytest.mark.long
@needs_litert
@pytest.mark.parametrize("name", ACTORS)
def test_a_litert_file_equals_numpy_over_300_steps(name: str, tmp_path: Path) -> None:
    network = network_of(name)
    found = litert.convert(network, "float32", tmp_path)
    check_equal(network, _acting(tmp_path, found), 2e-6)


@pytest.mark.long
@needs_litert
@pytest.mark.parametrize("name", ACTORS)
def test_float16_is_within_half_a_percent_of_the_span(name: str, tmp_path: Path) -> None:
    network, steps = network_of(name), inputs_of(network_of(name), CONTINUED)
    found = litert.convert(network, "float16", tmp_path)
    assert {each["dtype"] for each in found["inputs"]} == {"float32"}
    last = network.weights["action/kernel"].T.astype(np.float16)  # in LiteRT's layout, [A, units]
    assert last.tobytes() in (tmp_path / "model.tflite").read_bytes()
    expected = played(network, in_numpy(network), steps)
    for mine, its in zip(played(network, _acting(tmp_path, found), steps), expected, strict=True):
        span = max(2.0, float(np.ptp(its)))  # the span of actions is 2
        assert np.abs(mine - its).max() <= 0.005 * span


@pytest.mark.long
@needs_litert
@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_all_zero_features_are_not_divided_by_zero(precision: str, tmp_path: Path) -> None:
    network = actor(encoder=EMBEDDING)
    for part in DENSE:
        network.weights[f"features/{part}"][:] = 0.0
    found = litert.convert(network, precision, tmp_path)
    exact = {"float32": 2e-6, "float16": 0.01}[precision]
    check_equal(network, _acting(tmp_path, found), exact)


@pytest.mark.long
@needs_litert
@pytest.mark.parametrize("space", ["box", "masked", "mixed"])
def test_an_int8_file_equals_the_quantized_actor(space: str, tmp_path: Path) -> None:
    from ai_edge_litert.interpreter import OpResolverType

    network, rows = _quantized(space)
    found = litert.convert(network, "int8", tmp_path)
    (given,) = found["inputs"]
    scale, zero_point = grid(*network.ranges[0])
    assert (given["dtype"], given["scale"], given["zero_point"]) == ("int8", scale, zero_point)
    of_logits = grid(*network.ranges[-1])
    for each in found["outputs"]:
        expected = (TANH_SCALE, 0) if each["name"] == "action" else of_logits
        assert (each["dtype"], each["scale"], each["zero_point"]) == ("int8", *expected)
    steps = [{"observation": row[np.newaxis]} for row in rows]
    wanted = played(network, in_numpy(network), steps)
    q = [{"observation": integers(g["observation"], *network.ranges[0])} for g in steps]
    q = [{"observation": g["observation"].astype(np.int8)} for g in q]
    reference = {"experimental_op_resolver_type": OpResolverType.BUILTIN_REF}
    by_xnnpack = played(network, _acting(tmp_path, found), q)
    by_reference = played(network, _acting(tmp_path, found, **reference), q)
    for each, mine, other, its in zip(
        found["outputs"], by_xnnpack, by_reference, wanted, strict=True
    ):
        assert np.mean(mine != other) < 1e-3
        steps_apart = mine - np.rint(its / each["scale"]) - each["zero_point"]
        assert np.mean(steps_apart == 0) >= 0.99
        assert np.abs(steps_apart).max() <= 4


def test_a_range_that_the_converter_treats_as_empty_raises_an_error(tmp_path: Path) -> None:
    ranges = [(-3.0, 3.0), (0.0, 1e-6), (0.0, 3.0), (-3.0, 3.0), (-1.0, 1.0)]
    with pytest.raises(ValueError, match="the range of hidden_0, 0 to 1e-06: it must be wider"):
        litert.convert(quantised(actor(), ranges), "int8", tmp_path)


def test_unsupported_actors_and_precisions_are_rejected() -> None:
    for name in ("gru", "attention", "layer norm", "dict", "mixed", "td7", "camera"):
        architecture = network_of(name).architecture
        assert litert.refusal(architecture, "float16") is None
        reason = litert.refusal(architecture, "int8") or ""
        assert "cannot be quantized to int8: only relu MLPs can" in reason
    architecture = network_of("box").architecture
    assert litert.refusal(architecture, "int8") is None
    assert litert.refusal(dataclasses.replace(architecture, quantized=True), "int8") is None
    reason = litert.refusal(dataclasses.replace(architecture, quantized=True), "float32") or ""
    assert "this actor is quantized" in reason
    reason = "litert does not support bfloat16, only float32, float16 or int8"
    assert litert.refusal(architecture, "bfloat16") == reason
