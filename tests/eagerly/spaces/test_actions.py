"""Actions: units, one-hot choices, masks in Gymnasium's format, and unsupported spaces."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple

from eagerly.spaces import Actions

ASYMMETRIC = Box(np.array([-1.0, 0.0, -3.0], np.float32), np.array([1.0, 4.0, -1.0], np.float32))
MIXED = Dict(
    {
        "gear": Discrete(3, start=-1),
        "wheel": Box(-2.0, 4.0, (2,), np.float32),
        "lights": Tuple([MultiBinary(2), MultiDiscrete([2, 4], start=[5, 0])]),
    }
)


def test_every_dimension_has_its_own_bounds() -> None:
    actions = Actions(ASYMMETRIC)
    np.testing.assert_allclose(
        actions.to_environment(np.array([[-1.0, -1, -1], [0, 0, 0], [1, 1, 1], [0.5, 0.5, 0.5]])),
        [[-1, 0, -3], [0, 2, -2], [1, 4, -1], [0.5, 3, -1.5]],
    )


def test_actions_of_a_normalized_box_are_unchanged() -> None:
    drawn = np.random.default_rng(0).uniform(-1, 1, (1000, 6)).astype(np.float32)
    np.testing.assert_array_equal(Actions(Box(-1, 1, (6,))).to_environment(drawn), drawn)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounding_never_leaves_the_box(dtype: type) -> None:
    box = Box(np.full(50, -0.3, dtype), np.linspace(0.1, 0.7, 50, dtype=dtype), dtype=dtype)
    actions = Actions(box)
    for end in (-1.0, 1.0):
        assert box.contains(actions.to_environment(np.full(50, end, np.float32)))


@pytest.mark.parametrize(
    "space",
    [
        ASYMMETRIC,
        Box(np.full((2, 3), -0.3), np.linspace(0.1, 0.7, 6).reshape(2, 3), dtype=np.float64),
        Discrete(3, start=-1),
        MultiDiscrete([[2, 4], [3, 2]], start=[[5, 0], [1, 1]]),
        MultiBinary((2, 2)),
        MIXED,
        Tuple([Discrete(2), Box(-1.0, 3.0, ())]),
    ],
)
def test_environment_actions_are_converted_to_agent_actions(space: gymnasium.Space[Any]) -> None:
    actions, generator = Actions(space), np.random.default_rng(0)
    drawn = actions.random(generator, 50)
    drawn[0, : actions.continuous], drawn[1, : actions.continuous] = -1.0, 1.0
    found = actions.from_environment(actions.unflatten(actions.to_environment(drawn)))
    assert found.dtype == np.float32
    assert np.abs(found).max() <= 1.0
    np.testing.assert_allclose(found, drawn, atol=5e-7)
    for row in drawn[:5]:  # convert actions individually, in the structure of the space
        one = actions.unflatten(actions.to_environment(row))
        assert space.contains(one)
        np.testing.assert_allclose(actions.from_environment(one), row, atol=5e-7)


@pytest.mark.parametrize(
    ("space", "given", "message"),
    [
        (ASYMMETRIC, [0.0, 4.5, -2.0], r"here within \[0, 4\]; got 4.5 at index 1"),
        (ASYMMETRIC, [[0, 0, -2], [0, 0, 0]], r"within \[-3, -1\]; got 0 at index 2 of row 1"),
        (
            ASYMMETRIC,
            [0.0, 1.0],
            r"must have shape \(3,\) or a batch axis before it; got \(2,",
        ),
        (
            Tuple([Discrete(3), ASYMMETRIC]),
            ([1, 2, 0], np.zeros((2, 3))),
            r"must have the batch axis of the other parts, \(3,\); got \(2,\)",
        ),
        (Discrete(3, start=-1), 2, r"here within \[-1, 1\]; got 2 at index 0"),
        (Discrete(3), [0.0, 0.5], r"got 0.5 at index 0 of row 1"),
        (MIXED, {"gear": 0}, "actions must have the structure of Dict"),
        (MIXED["lights"], [[0, 1]], "actions must have the structure of Tuple"),
    ],
)
def test_actions_outside_the_space_are_rejected(
    space: gymnasium.Space[Any], given: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Actions(space).from_environment(given)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (Text(3), "must be a Box, a discrete space, or a Dict or Tuple of these; got Text"),
        (Tuple([]), "must be a Box, a discrete space, or a Dict or Tuple of these; got Tuple"),
        (Box(-np.inf, np.inf, (2,)), r"bounded.*got Box\(-inf, inf, .*TransformAction"),
        (Box(np.array([-1, -np.inf], np.float32), np.ones(2, np.float32)), "got Box"),
        (Box(0, 5, (2,), dtype=np.int32), "got dtype int32"),
        (Box(-1e308, 1e308, (1,), np.float64), "must be less than 1.8e308 apart, .*; got Box"),
        (Discrete(3, start=2**60), r"between -2\^53 and 2\^53; got Discrete\(3, start="),
        (Box(np.zeros(2, np.float32), np.array([1, 0], np.float32)), "low < high"),
        (
            Dict({"arm": Box(0, np.inf, (1,))}),
            "bounded.* in 'arm'; got Box.* the whole action space with 'arm' bounded",
        ),
    ],
)
def test_unsupported_action_spaces_are_rejected(space: gymnasium.Space, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Actions(space)


def test_a_mixed_space_has_continuous_columns_before_one_hot_choices() -> None:
    actions = Actions(MIXED)
    assert (actions.continuous, actions.choices) == (2, (3, 2, 2, 2, 4))
    assert (actions.size, actions.mask_size) == (15, 13)
    inside = np.zeros((1, 15), np.float32)
    inside[0, [0, 1]] = 0.0, 1.0
    inside[0, [2, 6, 7, 10, 14]] = 1.0  # selects gear -1, lights 1 and 0, values 6 and 3
    row = actions.to_environment(inside)
    np.testing.assert_array_equal(row, [[1, 4, -1, 1, 0, 6, 3]])
    made = actions.unflatten(row[0])
    assert MIXED.contains(made)
    assert made["gear"] == -1
    np.testing.assert_array_equal(made["lights"][0], [1, 0])
    np.testing.assert_array_equal(made["lights"][1], [6, 3])
    batch = actions.unflatten(np.concatenate([row, row]))
    np.testing.assert_array_equal(batch["gear"], [-1, -1])
    assert batch["lights"][1].shape == (2, 2)


@pytest.mark.parametrize(
    "space",
    [MIXED, Discrete(5, start=3), MultiDiscrete([[2, 3], [4, 5]]), Box(-1, 3, (2, 2)), ASYMMETRIC],
)
def test_random_actions_are_in_the_space_and_cover_it(space: gymnasium.Space[Any]) -> None:
    actions = Actions(space)
    drawn = actions.random(np.random.default_rng(0), 2000)
    for row in actions.to_environment(drawn)[:50]:
        assert space.contains(actions.unflatten(row))
    for segment in actions.segments():
        shares = drawn[:, segment].mean(axis=0)
        np.testing.assert_allclose(shares, 1 / len(shares), atol=0.05)
    assert ((drawn[:, actions.continuous :] == 0) | (drawn[:, actions.continuous :] == 1)).all()


def test_random_actions_obey_a_mask() -> None:
    actions = Actions(Discrete(4))
    mask = np.array([[0, 1, 0, 1], [1, 0, 0, 0]] * 500)
    drawn = actions.random(np.random.default_rng(0), 1000, mask)
    assert not drawn[mask == 0].any()
    np.testing.assert_allclose(drawn[::2].mean(axis=0), [0, 0.5, 0, 0.5], atol=0.1)


def test_masks_of_vector_environments_are_accepted() -> None:
    class Masked(gymnasium.Env):
        observation_space, action_space = Box(-1, 1, (1,)), Dict({"a": Discrete(3), "b": Box(0, 1)})

        def reset(self, **_: Any) -> Any:
            mask = {"a": np.array([1, 0, 1], np.int8), "b": None}
            return np.zeros(1, np.float32), {"action_mask": mask}

    _, info = gymnasium.vector.SyncVectorEnv([Masked] * 2).reset()
    assert "_a" in info["action_mask"]
    flat = Actions(Masked.action_space).mask(info["action_mask"])
    np.testing.assert_array_equal(flat, [[1, 0, 1]] * 2)


def test_masks_have_the_format_of_gymnasiums_sample() -> None:
    mask = {
        "gear": np.array([1, 0, 0], np.int8),
        "wheel": None,
        "lights": (np.array([2, 0], np.int8), (np.array([0, 1], np.int8), None)),
    }
    flat = Actions(MIXED).mask(mask)
    np.testing.assert_array_equal(flat, [1, 0, 0, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1])
    assert MIXED["gear"].sample(mask=mask["gear"]) == -1  # Gymnasium accepts the same mask
    np.testing.assert_array_equal(Actions(Discrete(2)).mask([[1, 0], [1, 1]]), [[1, 0], [1, 1]])
    np.testing.assert_array_equal(Actions(MIXED).mask(None), np.ones(13))


@pytest.mark.parametrize(
    ("space", "mask", "message"),
    [
        (Discrete(3), [0, 0, 0], r"action_mask leaves no valid action: \[0, 0, 0\]"),
        (Discrete(3), [1, 1], r"action_mask must have shape \(3,\); got \(2,\)"),
        (Discrete(3), ["a", "b", "c"], r"action_mask must contain only 0 and 1; got \['a'"),
        (Discrete(3), [0.0, -np.inf, -1e9], "action_mask must contain only 0 and 1"),
        (Discrete(3), [0.5, 0.5, 0.0], r"contain only 0 and 1; got \[0.5, 0.5, 0.0\]"),
        (MultiDiscrete([2, 2]), ([1, 2], [0, 1]), r"action_mask\[0\] must contain only 0 and 1"),
        (MultiBinary(2), [0, 3], r"action_mask must contain only 0, 1 and 2; got \[0, 3\]"),
        (MultiDiscrete([2, 2]), ([1, 0], [0, 0]), r"action_mask\[1\] leaves no valid action"),
        (MultiDiscrete([2, 2]), ([1, 0],), "must be a tuple of 2 masks; got 1"),
        (Tuple([Discrete(2)]), {"a": [1, 1]}, r"must have the entries \[0\]"),
        (Dict({"a": Discrete(2)}), {"b": [1, 1]}, r"must have the entries \['a'\]"),
        (MultiDiscrete([2, 2]), np.ones((2, 2)), "must be a tuple of 2 masks; got .*ndarray"),
        (MultiBinary(3), np.ones(2), r"must have shape \(3,\); got \(2,\)"),
        (Dict({"a": Discrete(2)}), 3, "must have the structure of"),
        (Tuple([Box(0, 1), Discrete(2)]), ([1], None), r"action_mask\[0\] must be None"),
    ],
)
def test_errors_describe_an_invalid_mask(
    space: gymnasium.Space[Any], mask: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Actions(space).mask(mask)


def test_a_batch_of_masks_may_be_stacked_or_a_list() -> None:
    pairs = [([1, 0], [1, 1]), ([0, 1], [1, 0])]
    actions, expected = Actions(MultiDiscrete([2, 2])), [[1, 0, 1, 1], [0, 1, 1, 0]]
    together = tuple(np.array(part) for part in zip(*pairs, strict=True))
    as_of_vectors = np.empty(2, object)
    as_of_vectors[:] = pairs
    for given in (together, pairs, as_of_vectors):
        np.testing.assert_array_equal(actions.mask(given), expected)
    asked = np.array([[[2, 0], [1, 2]], [[0, 0], [2, 1]]])
    actions = Actions(MultiBinary((2, 2)))
    rows = actions.mask(asked)
    np.testing.assert_array_equal(rows[0], [1, 1, 1, 0, 0, 1, 1, 1])
    np.testing.assert_array_equal(rows[1], actions.mask(asked[1]))
    of_two = Actions(Discrete(2))
    separate = np.empty(2, object)
    separate[:] = [np.array([1, 0]), np.array([1, 1])]
    np.testing.assert_array_equal(of_two.mask(separate), [[1, 0], [1, 1]])
    np.testing.assert_array_equal(of_two.mask([None, [1, 0]]), [[1, 1], [1, 0]])


@pytest.mark.parametrize(
    "space",
    [Discrete(3, start=2**24 + 1), Dict({"a": Box(0, 1, (1,), np.float16), "b": Discrete(5000)})],
)
def test_large_values_of_choices_are_not_rounded(space: gymnasium.Space[Any]) -> None:
    actions = Actions(space)
    inside = np.zeros(actions.size, np.float32)
    inside[-2] = 1.0
    made = actions.unflatten(actions.to_environment(inside))
    assert space.contains(made)
    assert (made["b"] == 4998) if isinstance(made, dict) else (made == 2**24 + 2)
