"""An ONNX file matches NumPy, for batches of any size."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eagerly.export import onnx
from eagerly.export.calibration import calibrated
from tests.eagerly.export.actors import ACTORS, Named, check_equal, in_numpy, inputs_of, network_of

needs_onnx = pytest.mark.skipif(
    find_spec("onnx") is None or find_spec("onnxruntime") is None,
    reason="needs onnx and onnxruntime: `make test-export`",
)


def _session(folder: Path) -> Any:
    import onnxruntime

    return onnxruntime.InferenceSession(str(folder / "model.onnx"))


@pytest.mark.long
@needs_onnx
@pytest.mark.parametrize("name", ACTORS)
def test_an_onnx_file_equals_numpy_over_300_steps(name: str, tmp_path: Path) -> None:
    network = network_of(name)
    found = onnx.convert(network, "float32", tmp_path)
    session = _session(tmp_path)
    names = [each["name"] for each in found["outputs"]]

    def act(given: Named) -> Named:
        return dict(zip(names, session.run(names, given), strict=True))

    check_equal(network, act, 2e-6)
    assert [each.name for each in session.get_inputs()] == [i["name"] for i in found["inputs"]]
    assert [each.name for each in session.get_outputs()] == names


@pytest.mark.long
@needs_onnx
def test_an_onnx_file_takes_batches_and_names_its_producer(tmp_path: Path) -> None:
    import onnx as library

    network = network_of("mixed")
    onnx.convert(network, "float32", tmp_path)
    rows = np.concatenate([given["observation"] for given in inputs_of(network, 7)])
    expected = in_numpy(network)({"observation": rows})
    for mine, its in zip(
        _session(tmp_path).run(None, {"observation": rows}), expected.values(), strict=True
    ):
        np.testing.assert_allclose(mine, its, rtol=2e-6, atol=2e-6)
    model = library.load(str(tmp_path / "model.onnx"))
    assert model.producer_name == "eagerly"
    assert [each.version for each in model.opset_import] == [onnx.OPSET]


@pytest.mark.long
@needs_onnx
def test_a_quantized_onnx_actor_equals_the_quantized_numpy_actor(tmp_path: Path) -> None:
    network = network_of("mixed", ())
    rows = np.concatenate([given["observation"] for given in inputs_of(network, 500)])
    network = calibrated(network, rows)
    onnx.convert(network, "float32", tmp_path)
    given = {"observation": (rows / 2.0).astype(np.float32)}
    for mine, its in zip(
        _session(tmp_path).run(None, given), in_numpy(network)(given).values(), strict=True
    ):
        assert np.mean(mine == its) > 0.99


def test_other_precisions_are_not_supported() -> None:
    reason = "onnx does not support float16, only float32"
    assert onnx.refusal(network_of("box").architecture, "float16") == reason
