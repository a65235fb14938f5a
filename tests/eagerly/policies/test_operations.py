"""NumPy operations and their TensorFlow counterparts match numbers computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from eagerly.export.tensorflow_graph import TensorFlowOperations
from eagerly.policies.operations import NumpyOperations, Operations


@pytest.mark.parametrize("ops", [NumpyOperations(), TensorFlowOperations()], ids=["numpy", "tf"])
def test_each_row_is_divided_by_its_mean_absolute_value_or_by_1e_8(ops: Operations) -> None:
    x = np.array([[1, -3, 0, 4], [10, 10, -10, 10], [0, 0, 0, 0], [4e-9, 0, 0, 0]], np.float32)
    found = np.asarray(ops.average_l1_norm(x))
    expected = [[1 / 2, -3 / 2, 0, 2], [1, 1, -1, 1], [0, 0, 0, 0], [4e-9 / 1e-8, 0, 0, 0]]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert found.dtype == np.float32


def test_the_mean_absolute_value_is_over_the_last_axis_and_keeps_the_dtype() -> None:
    x = np.arange(1.0, 13.0).reshape(2, 2, 3)
    found = NumpyOperations().average_l1_norm(x)
    np.testing.assert_allclose(found, x / np.array([[2.0, 5.0], [8.0, 11.0]])[:, :, np.newaxis])
    assert found.dtype == np.float64
