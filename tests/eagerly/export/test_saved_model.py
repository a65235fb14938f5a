"""A SavedModel matches the NumPy actor and contains its weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from eagerly.export import saved_model
from tests.eagerly.export.actors import ACTORS, Named, check_equal, in_numpy, inputs_of, network_of


@pytest.mark.long
@pytest.mark.parametrize("name", ACTORS)
def test_a_saved_model_equals_numpy_over_300_steps(name: str, tmp_path: Path) -> None:
    network = network_of(name)
    found = saved_model.convert(network, "float32", tmp_path)
    served = tf.saved_model.load(str(tmp_path / "saved_model")).signatures["serving_default"]

    def act(given: Named) -> Named:
        results = served(**{name: tf.constant(values) for name, values in given.items()})
        return {name: values.numpy() for name, values in results.items()}

    check_equal(network, act, 2e-6)
    assert {each["name"] for each in found["outputs"]} == set(served.structured_outputs)
    assert [each["dtype"] for each in found["inputs"]] == ["float32"] * len(found["inputs"])
    files = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()]
    assert found["files"] == sorted(files)


def test_a_saved_model_has_its_weights_and_takes_batches(tmp_path: Path) -> None:
    network = network_of("box")
    saved_model.convert(network, "float32", tmp_path)
    served = tf.saved_model.load(str(tmp_path / "saved_model")).signatures["serving_default"]
    rows = np.concatenate([given["observation"] for given in inputs_of(network, 7)])
    expected = in_numpy(network)({"observation": rows})["action"]
    np.testing.assert_allclose(served(tf.constant(rows))["action"], expected, rtol=2e-6, atol=2e-6)
    kernel = network.weights["hidden_0/kernel"]
    assert kernel.tobytes() in (tmp_path / "saved_model" / "saved_model.pb").read_bytes()


def test_other_precisions_are_not_supported() -> None:
    network = network_of("box")
    reason = "saved-model does not support int8, only float32"
    assert saved_model.refusal(network.architecture, "int8") == reason
