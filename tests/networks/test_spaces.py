"""Spaces: units change in one place, per dimension; what is not supported is named."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from eagerly.networks import ActionBounds, observation_size

Box = gymnasium.spaces.Box
ASYMMETRIC = Box(np.array([-1.0, 0.0, -3.0], np.float32), np.array([1.0, 4.0, -1.0], np.float32))


def test_every_dimension_has_its_own_bounds() -> None:
    bounds = ActionBounds(ASYMMETRIC)
    np.testing.assert_allclose(
        bounds.to_environment(np.array([[-1.0, -1, -1], [0, 0, 0], [1, 1, 1], [0.5, 0.5, 0.5]])),
        [[-1, 0, -3], [0, 2, -2], [1, 4, -1], [0.5, 3, -1.5]],
    )


def test_a_box_that_is_already_normalised_changes_no_bit() -> None:
    actions = np.random.default_rng(0).uniform(-1, 1, (1000, 6)).astype(np.float32)
    np.testing.assert_array_equal(ActionBounds(Box(-1, 1, (6,))).to_environment(actions), actions)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounding_never_leaves_the_box(dtype: type) -> None:
    box = Box(np.full(50, -0.3, dtype), np.linspace(0.1, 0.7, 50, dtype=dtype), dtype=dtype)
    bounds = ActionBounds(box)
    for end in (-1.0, 1.0):
        assert box.contains(bounds.to_environment(np.full(50, end, np.float32)))


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (gymnasium.spaces.Discrete(3), "Discrete actions are not supported"),
        (Box(-np.inf, np.inf, (2,)), "flat, bounded.*got low .*RescaleAction"),
        (Box(np.array([-1, -np.inf], np.float32), np.ones(2, np.float32)), "got low"),
        (Box(-1, 1, (2, 2)), r"got shape \(2, 2\)"),
        (Box(0, 5, (2,), dtype=np.int32), "got dtype int32"),
        (Box(np.zeros(2, np.float32), np.array([1, 0], np.float32)), "low < high"),
    ],
)
def test_unsupported_actions_are_named(space: gymnasium.Space, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ActionBounds(space)


@pytest.mark.parametrize(
    "space", [Box(-1, 1, (2, 2)), gymnasium.spaces.Discrete(3), Box(-1, 1, ())]
)
def test_unsupported_observations_are_named(space: gymnasium.Space) -> None:
    with pytest.raises(ValueError, match=r"observations must be a flat Box of shape \(O,\); got"):
        observation_size(space)


def test_a_flat_box_is_supported_whatever_its_bounds() -> None:
    assert observation_size(Box(-np.inf, np.inf, (17,))) == 17
