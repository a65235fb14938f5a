"""Calibration measures ranges on observations. Rescaling preserves the actor's outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eagerly.export import calibration
from eagerly.export.calibration import calibrated, rescaled
from eagerly.export.plan import ExportPlan
from eagerly.export.ties import count_ties, without_ties
from eagerly.policies.network import ActorNetwork
from eagerly.policies.numpy_actor import NumpyActor
from tests.eagerly.export.actors import NORMALIZED, network_of
from tests.eagerly.export.drawn import EMBEDDING, acting, actor
from tests.eagerly.policies.test_numpy_actor import built
from tests.helpers import equal_weights

SCALES = np.array([0.01, 1.0, 300.0])


def _first_kernel(network: ActorNetwork) -> np.ndarray:
    return network.weights["hidden_0/kernel"]


def _spread_rows(count: int) -> np.ndarray:
    """Returns observations `[N, 3]` whose columns have different scales."""
    random = np.random.default_rng(6)
    return random.normal(size=(count, 3)) * SCALES + SCALES


def _scaled(network: ActorNetwork, observations: np.ndarray) -> np.ndarray:
    if not network.architecture.normalized:
        return observations
    mean, scale = (network.weights[f"observation_normalization/{p}"] for p in ("mean", "scale"))
    return (observations - mean) * scale


@pytest.mark.parametrize("settings", [{}, NORMALIZED])
def test_rescaling_does_not_change_the_actor_outputs(settings: dict[str, bool]) -> None:
    network = built("box", settings)[0].snapshot().network
    observations = _spread_rows(400)
    if settings:
        observations /= SCALES  # keeps normalized values from being clipped
    found, rows = rescaled(network, _scaled(network, observations))
    assert found.architecture.normalized
    np.testing.assert_allclose(rows, _scaled(found, observations), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        NumpyActor(found)(observations), NumpyActor(network)(observations), rtol=3e-5, atol=3e-5
    )


@pytest.mark.parametrize(("constant", "change"), [(7.0, 0.0), (0.0, 1e-38), (0.0, 1e-32)])
def test_every_column_fills_the_grid_unless_it_is_constant(constant: float, change: float) -> None:
    network = network_of("box")
    observations = _spread_rows(400)
    observations[:, 2] = constant + change * np.sign(observations[:, 2])
    found = calibrated(network, observations)
    assert all(np.isfinite(values).all() for values in found.weights.values())
    rows = _scaled(found, observations)
    np.testing.assert_allclose(rows[:, :2].max(axis=0), 1.0, rtol=1e-5)
    np.testing.assert_allclose(rows[:, :2].min(axis=0), -1.0, rtol=1e-5)
    np.testing.assert_allclose(rows[:, 2], 0.0, atol=1e-6)
    assert found.ranges[0] == pytest.approx((-1.0, 1.0))


def test_int8_is_accurate_for_observations_of_different_scales() -> None:
    """A single scale for all columns would round the smallest column to 0."""
    network, observations = network_of("box"), _spread_rows(4000)
    shrunk = _first_kernel(network) / SCALES[:, np.newaxis].astype(np.float32)
    network = ActorNetwork(network.architecture, network.weights | {"hidden_0/kernel": shrunk})
    found = NumpyActor(calibrated(network, observations[:3000]))
    apart = found(observations[3000:]) - NumpyActor(network)(observations[3000:])
    assert np.abs(apart).mean() < 0.01


def test_float32_moments_are_accurate_for_a_column_far_from_0() -> None:
    network, far = network_of("float64"), np.array([0.0, 0.0, 30_000.3])
    moved = {"hidden_0/bias": network.weights["hidden_0/bias"] - far @ _first_kernel(network)}
    network = ActorNetwork(network.architecture, network.weights | moved)
    rows = np.random.default_rng(7).normal(size=(400, 3)) * [1.0, 1.0, 0.01] + far
    found, _ = rescaled(network, rows)
    np.testing.assert_allclose(NumpyActor(found)(rows), NumpyActor(network)(rows), atol=1e-5)


def test_an_export_is_calibrated_on_scaled_observations_and_has_no_ties() -> None:
    network, observations = network_of("normalized"), 100.0 * _spread_rows(4000)
    own: Any = None  # the plan's run and policy, which the network does not depend on
    requested = ExportPlan(own, own, network, own, "c", "int8", 0)
    found = requested.quantize(observations)
    expected = calibrated(network, NumpyActor(network).scaled(observations))
    assert count_ties(expected) > count_ties(found) == 0
    assert equal_weights(found.weights, without_ties(expected).weights)


def test_mask_columns_are_not_rescaled() -> None:
    network = network_of("masked", (("normalize_observations", True),))
    found = calibrated(network, np.random.default_rng(0).normal(size=(50, 3)))
    for part, value in (("mean", 0.0), ("scale", 1.0)):
        columns = found.weights[f"observation_normalization/{part}"][3:]
        np.testing.assert_array_equal(columns, np.full(5, value, np.float32))


def test_inactive_units_and_all_zero_rows_have_valid_ranges() -> None:
    network = network_of("box")
    silent = {f"hidden_{index}/bias": np.full(units, -9.0) for index, units in ((0, 16), (1, 12))}
    weights = {k: np.float32(silent.get(k, v)) for k, v in network.weights.items()}
    found = calibrated(ActorNetwork(network.architecture, weights), np.zeros((5, 3)))
    assert found.ranges[:3] == [(-1.0, 1.0)] * 3
    scores = NumpyActor(found)(np.zeros((1, 3)))
    assert np.isfinite(scores).all()


def test_a_float64_actor_becomes_float32() -> None:
    found = calibrated(network_of("float64"), _spread_rows(50))
    assert {values.dtype for values in found.weights.values()} == {np.dtype(np.float32)}


def test_an_actor_without_hidden_layers_is_calibrated() -> None:
    network = actor(())
    rows = np.random.default_rng(0).normal(size=(500, 5)).astype(np.float32)
    # Both actors take the same rows, because the calibrated actor normalizes them itself.
    errors = acting(calibrated(network, rows))(rows) - acting(network)(rows)
    assert np.abs(errors).mean() < 0.01


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.zeros((5, 4)), r"rows must have shape \[N, 3\]; got \(5, 4\)"),
        (np.full((5, 3), np.nan), "rows must be finite"),
    ],
)
def test_unusable_rows_raise_errors(rows: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        calibrated(network_of("box"), rows)


def test_only_relu_mlps_can_be_quantized() -> None:
    assert "encoders or a recurrent core cannot" in (
        calibration.refusal(network_of("gru").architecture) or ""
    )
    assert "a state embedding cannot" in (
        calibration.refusal(actor(encoder=EMBEDDING).architecture) or ""
    )
    assert "layer normalization" in (
        calibration.refusal(network_of("layer norm").architecture) or ""
    )
    assert "leaky_relu" in (calibration.refusal(network_of("mixed").architecture) or "")
    assert calibration.refusal(network_of("box").architecture) is None
