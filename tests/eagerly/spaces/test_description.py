"""Descriptions of spaces in one line, and values outside their space."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, OneOf, Sequence, Text, Tuple

from eagerly.spaces import first_not_finite, outside, text_of
from eagerly.spaces.description import first_outside

SMALL = Box(np.array([-1.0, 0.0], np.float32), np.array([1.0, 4.0], np.float32))
LARGE = Box(-np.arange(1, 22, dtype=np.float32), np.full(21, 0.5, np.float32))


@pytest.mark.parametrize(
    ("space", "text"),
    [
        (Box(-1.0, 1.0, (21,), np.float32), "Box(-1.0, 1.0, (21,), float32)"),
        (SMALL, "Box([-1.0, 0.0], [1.0, 4.0], (2,), float32)"),
        (LARGE, "Box(-21.0 to -1.0, 0.5, (21,), float32)"),
        (Box(0, 255, (64, 64, 3), np.uint8), "Box(0, 255, (64, 64, 3), uint8)"),
        (Box(-np.inf, np.inf, (0,)), "Box([], [], (0,), float32)"),
        (Dict({"a": SMALL, "b": Discrete(3)}), f"Dict('a': {text_of(SMALL)}, 'b': Discrete(3))"),
        (Tuple([LARGE, Discrete(2)]), f"Tuple({text_of(LARGE)}, Discrete(2))"),
        (MultiDiscrete([2, 3]), "MultiDiscrete([2 3])"),
        (MultiDiscrete(range(2, 42)), "MultiDiscrete(2 to 41, (40,))"),
        (MultiDiscrete([[2, 3], [4, 5]]), "MultiDiscrete([[2 3] [4 5]])"),
        (Text(9), "Text(1, 9)"),
        (Text(9, charset="a"), "Text(1, 9, charset=a)"),
        (Sequence(LARGE), f"Sequence({text_of(LARGE)}, stack=False)"),
        (OneOf([LARGE, Text(9)]), f"OneOf({text_of(LARGE)}, Text(1, 9))"),
    ],
)
def test_even_a_large_space_is_described_in_one_line(
    space: gymnasium.Space[Any], text: str
) -> None:
    assert text_of(space) == text


NESTED = Dict({"gear": Discrete(3), "robot": Tuple([Discrete(2), SMALL])})
ARM = np.zeros(2, np.float32)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"gear": 2, "robot": (1, ARM)}, None),
        ({"gear": 3, "robot": (1, ARM - 1)}, "gear"),
        ({"gear": 2, "robot": (1, ARM - 1)}, "robot/1"),
        ({"gear": 2, "robot": (1,)}, "robot"),
        ({"gear": 2}, ""),
    ],
)
def test_the_first_part_outside_its_space_is_found(value: Any, path: str | None) -> None:
    found = outside(NESTED, value)
    assert (found and found[0]) == path
    assert (found is None) == NESTED.contains(value)


@pytest.mark.parametrize(
    ("space", "value", "text"),
    [
        (SMALL, [1.0, 4.0], None),
        (SMALL, [-1.5, 4.5], "index 0 is -1.5, outside [-1.0, 1.0] (1 more outside)"),
        (SMALL, [0.0, 5.0], "index 1 is 5.0, outside [0.0, 4.0]"),
        (SMALL, [0.0, np.nan], "index 1 is nan, outside [0.0, 4.0]"),
        (MultiDiscrete([2, 3], start=[0, 1]), [1, 3], None),
        (MultiDiscrete([2, 3], start=[0, 1]), [0, 1], None),
        (MultiDiscrete([2, 3], start=[0, 1]), [1, 4], "index 1 is 4, outside [1, 3]"),
        (Discrete(3), 5, None),  # has no single numbers to describe
    ],
)
def test_the_first_number_outside_its_bounds_is_described(
    space: gymnasium.Space[Any], value: Any, text: str | None
) -> None:
    assert first_outside(space, np.array(value)) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": np.zeros(2), "b": ("nan", [[0, 1], [2, 3]])}, None),
        (np.array([0.0, np.nan, np.inf]), "nan at index 1"),
        ({"a": 0, "b": (0.0, np.array([[0.0, 1e300]]))}, "1e+300 at index (0, 1) of entry 'b/1'"),
        ({"a": -np.inf}, "-inf of entry 'a'"),
    ],
)
def test_the_first_number_that_is_not_finite_in_float32_is_located(
    value: Any, text: str | None
) -> None:
    assert first_not_finite(value) == text
