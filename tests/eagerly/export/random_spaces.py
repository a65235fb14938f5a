"""Random spaces, masks in Gymnasium's formats, and invalid observations and masks."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from eagerly.spaces.observations import leaves

_SHAPES = ((), (1,), (3,), (2, 2), (2, 1, 2))
_DTYPES = (np.float16, np.float32, np.float64, np.int8, np.int64, np.uint8)
_WRONG = (None, "text", [], {}, (), [[1], [2, 3]], 1e400, np.zeros((1, 1, 1, 1, 1)), 1j)


def random_observations(random: np.random.Generator, depth: int = 3) -> gymnasium.Space[Any]:
    """Draws an observation space. Some spaces contain a `Text` entry, which must be ignored."""
    kind = random.integers(8 if depth == 3 else 6) if depth else random.integers(4)
    if kind > 3:
        parts = [random_observations(random, depth - 1) for _ in range(random.integers(1, 4))]
        if random.random() < 0.2:
            parts.append(spaces.Text(3))
        if kind % 2:
            return spaces.Tuple(parts)
        return spaces.Dict(list(zip(("z/", "y", "x", "w"), parts)))  # noqa: B905
    if kind == 0:
        shape = _SHAPES[random.integers(len(_SHAPES))]
        dtype = _DTYPES[random.integers(len(_DTYPES))]
        if dtype == np.uint8 and len(shape) > 1:  # an image, too small for the convolutions
            dtype = np.int8
        return spaces.Box(0 if dtype == np.uint8 else -9, 9, shape, dtype)
    return _choices(random, kind)


def random_actions(random: np.random.Generator, depth: int = 2) -> gymnasium.Space[Any]:
    """Draws an action space."""
    kind = random.integers(6) if depth else random.integers(4)
    if kind > 3:
        parts = [random_actions(random, depth - 1) for _ in range(random.integers(1, 4))]
        return spaces.Tuple(parts) if kind == 4 else spaces.Dict(dict(zip("cab", parts)))  # noqa: B905
    if kind == 0:
        shape, dtype = _SHAPES[random.integers(len(_SHAPES))], _DTYPES[random.integers(3)]
        low = random.integers(-8, 0, shape).astype(dtype)
        return spaces.Box(low, low + random.integers(1, 9, shape).astype(dtype), shape, dtype)
    return _choices(random, kind)


def _choices(random: np.random.Generator, kind: int) -> gymnasium.Space[Any]:
    if kind == 1:
        return spaces.Discrete(int(random.integers(1, 5)), start=int(random.integers(-3, 4)))
    shape = ((2,), (1,), (2, 2))[random.integers(3)]
    if kind == 2:
        counts, dtype = random.integers(1, 5, shape), (np.int64, np.int32)[random.integers(2)]
        return spaces.MultiDiscrete(counts, dtype, start=random.integers(-3, 4, shape))
    return spaces.MultiBinary(shape)


def left_out(space: gymnasium.Space[Any], random: np.random.Generator) -> str:
    """Draws a value of `ignore_entries`: every `Text` entry, and some but not all other entries."""
    inside = [(path, leaf) for path, leaf in leaves(space) if path]
    unread = [path for path, leaf in inside if isinstance(leaf, spaces.Text)]
    others = [path for path, leaf in inside if not isinstance(leaf, spaces.Text)]
    count = random.integers(len(others)) if others else 0
    return ",".join([*unread, *random.permutation(others)[:count]])


def vectorized(masks: list[Any]) -> Any:
    """Combines masks of N environments in the format of a vector environment's `infos`."""
    vector, infos = VectorEnv[Any, Any, Any](), dict[str, Any]()
    vector.num_envs = len(masks)
    for index, mask in enumerate(masks):
        infos = vector._add_info(infos, {"action_mask": mask}, index)
    return infos["action_mask"]


def misfit(value: Any, random: np.random.Generator) -> Any:
    """Changes one random part of an observation or mask, which usually makes it invalid."""
    wrong = _WRONG[random.integers(len(_WRONG))]
    if isinstance(value, dict) and value and random.random() < 0.7:
        key = list(value)[random.integers(len(value))]
        found = {**value, key: misfit(value[key], random)}
        if random.random() < 0.2:
            del found[key]
        return found | ({"unknown": 1} if random.random() < 0.1 else {})
    if isinstance(value, tuple | list) and value and random.random() < 0.7:
        place = random.integers(len(value))
        found = [*value[:place], misfit(value[place], random), *value[place + 1 :]]
        return type(value)(found[:-1] if random.random() < 0.2 else found)
    numbers = isinstance(value, np.ndarray | np.generic) and value.dtype != object
    if numbers and random.random() < 0.6:
        changed = (value + 9, value.astype(np.float64) / 3, value[np.newaxis], value.astype(object))
        return changed[random.integers(len(changed))]
    return wrong
