"""Observations of any space become rows; errors name parts that do not fit the space."""

from __future__ import annotations

import json
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from eagerly.environments.flattening import FlatEnvironment
from eagerly.spaces import Actions, Observations, document_of, space_of

ROBOT = Dict(
    {
        "camera": Box(0, 255, (4, 5, 3), np.uint8),
        "arm": Tuple([Box(-np.inf, np.inf, (2,), np.float64), Discrete(3, start=1)]),
        "flags": MultiBinary(2),
        "tool": MultiDiscrete([2, 3]),
    }
)


def test_entries_are_in_the_order_of_the_space() -> None:
    laid = Observations(ROBOT, masked=2)
    assert [(entry.path, entry.kind, entry.start, entry.stop) for entry in laid.entries] == [
        ("arm/0", "vector", 0, 2),
        ("arm/1", "choice", 2, 5),
        ("camera", "image", 5, 65),
        ("flags", "vector", 65, 67),
        ("tool", "choice", 67, 72),
    ]
    assert laid.size == 74
    np.testing.assert_array_equal(np.flatnonzero(laid.scalable), [0, 1, 65, 66])


def test_choices_are_one_hot_and_images_keep_their_values() -> None:
    laid = Observations(ROBOT, masked=2)
    ROBOT.seed(0)
    one = ROBOT.sample()
    one["arm"] = (np.array([0.5, -1e10]), np.int64(3))
    one["tool"] = np.array([1, 0])
    row = laid.flatten(one, np.array([1, 0]))
    assert row.dtype == np.float32
    np.testing.assert_array_equal(row[:5], np.array([0.5, -1e10, 0, 0, 1], np.float32))
    np.testing.assert_array_equal(row[5:65].reshape(4, 5, 3), one["camera"])
    np.testing.assert_array_equal(row[67:], [0, 1, 1, 0, 0, 1, 0])
    np.testing.assert_array_equal(laid.split(row)["tool"], [0, 1, 1, 0, 0])
    np.testing.assert_array_equal(laid.flatten(one)[-2:], [1, 1])


def test_a_batch_is_flattened_like_its_members() -> None:
    laid = Observations(ROBOT)
    ROBOT.seed(1)
    members = [ROBOT.sample() for _ in range(3)]
    batch = {
        "camera": np.stack([one["camera"] for one in members]),
        "arm": tuple(np.stack([one["arm"][i] for one in members]) for i in range(2)),
        "flags": np.stack([one["flags"] for one in members]),
        "tool": np.stack([one["tool"] for one in members]),
    }
    np.testing.assert_array_equal(
        laid.flatten(batch), np.stack([laid.flatten(one) for one in members])
    )


def test_rows_are_converted_back_to_observations() -> None:
    laid = Observations(ROBOT, masked=2)
    ROBOT.seed(2)
    one = ROBOT.sample()
    one["arm"] = (np.array([0.5, -3.0]), np.int64(2))
    found = laid.unflatten(laid.flatten(one))
    assert found in ROBOT
    for part, expected in zip(laid.parts(found), laid.parts(one), strict=True):
        assert part.dtype == expected.dtype
        np.testing.assert_array_equal(part, expected)
    rows = np.stack([laid.flatten(one)] * 3)
    batch = laid.unflatten(rows)
    assert batch["camera"].shape == (3, 4, 5, 3)
    assert batch["arm"][1].tolist() == [2, 2, 2]
    np.testing.assert_array_equal(laid.flatten(batch), rows)
    with pytest.raises(ValueError, match=r"shape \[74\] or \[N, 74\]; got \(5,\)"):
        laid.unflatten(np.zeros(5))


def test_unflattened_observations_lack_ignored_entries() -> None:
    laid = Observations(ROBOT, ignored=("arm/0", "camera"))
    found = laid.unflatten(laid.flatten(ROBOT.sample()))
    assert found.keys() == {"arm", "flags", "tool"}
    assert found["arm"][0] is None
    assert laid.flatten(found).shape == (laid.size,)
    none = Observations(ROBOT, ignored=("arm",))
    assert none.unflatten(np.zeros(none.size)).keys() == {"camera", "flags", "tool"}


def test_a_flat_box_is_already_a_row() -> None:
    assert Observations(Box(-np.inf, np.inf, (17,))).is_row
    assert not Observations(Box(-1, 1, (17,)), masked=2).is_row
    assert not Observations(Box(-1, 1, (2, 2))).is_row
    assert not Observations(Discrete(4)).is_row


@pytest.mark.parametrize(
    ("shape", "frames"),
    [
        ((64, 48), (1, 64, 48, 1)),
        ((64, 48, 3), (1, 64, 48, 3)),
        ((4, 64, 48), (4, 64, 48, 1)),
        ((4, 64, 48, 3), (4, 64, 48, 3)),
    ],
)
def test_images_and_stacks_are_distinguished_by_their_axes(
    shape: tuple[int, ...], frames: tuple[int, ...]
) -> None:
    (image,) = Observations(Box(0, 255, shape, np.uint8)).images
    assert image.frames == frames
    assert image.image_shape == (64, 48, frames[0] * frames[3])


def test_empty_observations_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"observations must be a Box, a discrete space.*got"):
        Observations(Tuple([]))


def _wrong(**parts: Any) -> Any:
    ROBOT.seed(0)
    return {**ROBOT.sample(), **parts}


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (_wrong(more=1), r"must be a dictionary with keys \['arm', 'camera', 'flags', 'tool'\]"),
        (np.zeros(3), "must be a dictionary with keys"),
        (_wrong(arm=(np.zeros(2),)), "'arm' must be a tuple of length 2"),
        (_wrong(arm=(np.zeros(3), 1)), r"'arm/0' must have shape \(2,\); got \(3,\)"),
        (_wrong(arm=(np.zeros(2), 4)), r"'arm/1' must be in its space.*got 4"),
        (_wrong(camera=np.zeros((4, 5, 3))), "'camera' must have dtype uint8; got float64"),
        (_wrong(camera=np.zeros((4, 5, 3), np.uint16)), "must have dtype uint8; got uint16"),
        (_wrong(flags=np.zeros((2, 2), np.int8)), "'flags' must have the batch shape of"),
        (_wrong(tool=[[1], [1, 2]]), r"'tool' must have shape \(2,\)"),
    ],
)
def test_errors_name_the_part_that_does_not_fit(observation: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Observations(ROBOT).flatten(observation)


@pytest.mark.parametrize(
    "space",
    [
        ROBOT,
        Box(np.array([-1.5, -np.inf]), np.array([0.1, np.inf]), dtype=np.float64),
        MultiDiscrete([[2, 3], [4, 5]], start=[[1, 0], [0, 2]]),
        Box(-1, 1, ()),
        Box(-1, 1, (0,)),
        Box(0, 1, (3,), np.bool_),
        Discrete(5, start=2, dtype=np.int32),
        MultiDiscrete([3, 3], dtype=np.int8),
        Box(-(2**62) - 1, 2**62 + 1, (2,), np.int64),
        Box(0, 2**64 - 1, (2,), np.uint64),
    ],
)
def test_spaces_are_restored_from_json(space: gymnasium.Space[Any]) -> None:
    assert space_of(json.loads(json.dumps(document_of(space)))) == space


@pytest.mark.parametrize(
    "document",
    [
        *({}, {"Sphere": 3}, {"Discrete": [3, 0, "float32"]}, {"Box": [[0]]}),
        # These would need gigabytes.
        *({"Discrete": [10**9, 0]}, {"MultiBinary": 10**10}, {"MultiBinary": [10**5, 10**5]}),
        {"MultiDiscrete": [[10**9, 2], [0, 0]]},
        {"Box": [[10**5, 10**5], "float32", "0.0", "1.0"]},
    ],
)
def test_invalid_json_is_rejected(document: dict[str, Any]) -> None:
    with pytest.raises((ValueError, IndexError)):
        space_of(document)


class _Robot(gymnasium.Env[Any, Any]):
    """Returns samples of its space, and a mask without valid choices when the episode ends."""

    observation_space, action_space = ROBOT, Tuple([Box(0, 4, (1,)), Discrete(3)])

    def __init__(self) -> None:
        self.taken: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        ROBOT.seed(seed)
        self.taken = []
        return ROBOT.sample(), {"action_mask": (None, np.array([0, 1, 1]))}

    def step(self, action: Any) -> Any:
        self.taken.append(action)
        ends = len(self.taken) == 2
        mask = np.zeros(3) if ends else np.array([1, 0, 0])
        return ROBOT.sample(), 1.0, ends, False, {"action_mask": (None, mask)}


def test_an_environment_is_flattened_to_rows() -> None:
    inner = _Robot()
    actions = Actions(inner.action_space)
    env = FlatEnvironment(inner, Observations(ROBOT, actions.mask_size), actions)
    assert env.action_space.shape == (2,)
    row, _ = env.reset(seed=0)
    assert env.observation_space.contains(row)
    np.testing.assert_array_equal(row[-3:], [0, 1, 1])
    row = env.step(np.array([3.5, 2.0], np.float32))[0]
    np.testing.assert_array_equal(row[-3:], [1, 0, 0])
    assert inner.action_space.contains(inner.taken[0])
    assert inner.taken[0][1] == 2
    row, _, terminated, *_ = env.step(np.array([3.5, 0.0], np.float32))
    assert terminated
    # No action follows, so the mask without valid actions is ignored.
    np.testing.assert_array_equal(row[-3:], [1, 1, 1])


def test_without_mask_columns_masks_are_ignored() -> None:
    env = FlatEnvironment(_Robot(), Observations(ROBOT), Actions(_Robot.action_space))
    assert env.reset(seed=0)[0].shape == (72,)


def test_the_order_of_a_dictionary_is_restored() -> None:
    space = Dict([("z", Box(-1, 1, (1,))), ("a", Box(-1, 1, (2,)))])
    again = space_of(json.loads(json.dumps(document_of(space))))
    assert isinstance(again, Dict)
    assert list(again.spaces) == ["z", "a"]


def test_entries_with_equal_paths_are_rejected() -> None:
    inner = Box(-1.0, 1.0, (2,))
    with pytest.raises(ValueError, match=r"must be unique; got \['a/b', 'a/b'\]"):
        Observations(Dict({"a/b": inner, "a": Dict({"b": inner})}))


def test_the_keys_of_a_dict_must_be_strings() -> None:
    with pytest.raises(ValueError, match="must be strings; got 3"):
        Observations(Dict({3: Box(-1, 1, (1,))}))  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("shape", "frames"),
    [
        ((64, 48), (1, 64, 48, 1)),
        ((64, 48, 3), (1, 64, 48, 3)),
        ((64, 48, 6), (1, 64, 48, 6)),
        ((3, 64, 48), (3, 64, 48, 1)),
        ((10, 64, 48), (10, 64, 48, 1)),
        ((2, 64, 48, 3), (2, 64, 48, 3)),
    ],
)
def test_image_shapes_determine_the_frames(shape: tuple[int, ...], frames: tuple[int, ...]) -> None:
    (entry,) = Observations(Box(0, 255, shape, np.uint8)).entries
    assert entry.frames == frames
