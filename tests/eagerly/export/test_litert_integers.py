"""An int8 LiteRT file contains the integers that `integer_grids` computes, or conversion fails."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from eagerly.export import litert
from eagerly.export.calibration import calibrated
from eagerly.export.litert_integers import check_integers, with_integers
from eagerly.policies.heads import ActionHead
from eagerly.policies.integer_grids import grid, layer_integers
from eagerly.policies.network import ActorNetwork
from tests.eagerly.export.actors import network_of
from tests.eagerly.export.drawn import MUTATIONS, actor, mutated, quantised

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        find_spec("ai_edge_litert") is None, reason="needs ai-edge-litert: `make test-export`"
    ),
]


def _quantized(space: str) -> ActorNetwork:
    network = network_of(space, ())
    rows = np.random.default_rng(0).normal(size=(500, network.architecture.visible))
    return calibrated(network, rows)


def _changed(network: ActorNetwork, name: str, values: np.ndarray) -> ActorNetwork:
    weights = network.weights | {name: np.asarray(values, np.float32)}
    return ActorNetwork(network.architecture, weights)


def _file(network: ActorNetwork, folder: Path) -> bytes:
    litert.convert(network, "int8", folder)
    return (folder / "model.tflite").read_bytes()


def test_a_file_with_different_integers_raises_an_error(tmp_path: Path) -> None:
    network = _quantized("box")
    data = _file(network, tmp_path)
    check_integers(network, data)
    kernel = network.weights["hidden_1/kernel"].copy()
    kernel[2, 1] = 0.9 * kernel[2, 1] + 0.01
    with pytest.raises(ValueError, match="changed the integers of hidden_1/kernel"):
        check_integers(_changed(network, "hidden_1/kernel", kernel), data)
    bias = network.weights["action/bias"] + 0.1
    with pytest.raises(ValueError, match="changed the integers of action/bias"):
        check_integers(_changed(network, "action/bias", bias), data)
    high = network.weights["quantization/high"].copy()
    high[1] *= 1.01
    with pytest.raises(ValueError, match="changed the scale and zero point of hidden_0"):
        with_integers(_changed(network, "quantization/high", high), data)


@pytest.mark.parametrize("what", MUTATIONS)
def test_a_file_with_one_slightly_wrong_number_raises_an_error(what: str, tmp_path: Path) -> None:
    network = quantised(actor())
    data = _file(network, tmp_path)
    for seed in range(20):
        with pytest.raises(ValueError, match="the LiteRT converter changed the"):
            check_integers(mutated(network, what, seed), data)


def test_a_file_with_another_graph_raises_an_error(tmp_path: Path) -> None:
    data = _file(_quantized("box"), tmp_path)
    with pytest.raises(ValueError, match="the LiteRT converter"):
        check_integers(_quantized("choice"), data)


def test_zero_columns_and_biases_of_millions_of_steps_match(tmp_path: Path) -> None:
    network = _quantized("mixed")
    kernel = network.weights["hidden_1/kernel"].copy()
    kernel[:, 3] = 0.0
    kernel[:, 4] *= 1e-5
    kernel[:, 5] *= 1e-9
    network = _changed(network, "hidden_1/kernel", kernel)
    bias = network.weights["hidden_1/bias"]
    steps = layer_integers(kernel, bias, grid(*network.ranges[1])[0])[1]
    assert np.abs(steps[4]) > 1e6
    assert abs(abs(steps[5]) - 2**30) < 1000
    data = _file(network, tmp_path)  # raises an error if integers differ
    assert steps.tobytes() in data


def test_all_zero_layers_are_exported(tmp_path: Path) -> None:
    for layer in ("hidden_0", "hidden_1", "action"):
        network = actor(head=ActionHead(2, (3,)))
        network.weights[f"{layer}/bias"][:] = 0.0
        check_integers(quantised(network), _file(quantised(network), tmp_path))
        network.weights[f"{layer}/kernel"][:] = 0.0
        ranges = [(-3.0, 3.0), (0.0, 3.0), (0.0, 3.0), (-3.0, 3.0), (-3.0, 3.0)]
        check_integers(quantised(network, ranges), _file(quantised(network, ranges), tmp_path))
