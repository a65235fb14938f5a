"""Spaces on one line."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple

from eagerly.spaces import text_of

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
    ],
)
def test_a_space_takes_one_line_however_large(space: gymnasium.Space[Any], text: str) -> None:
    assert text_of(space) == text
