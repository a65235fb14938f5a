"""Helpers that inspect spaces and describe them as text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

# Goals in goal-conditioned observations, as named by Gymnasium-Robotics.
GOAL_ENTRIES = ("achieved_goal", "desired_goal")
_MOST = 8  # more bounds than this are shown as a range
_MOST_LETTERS = 16


def described(space: gymnasium.Space[Any]) -> str:
    """Describes a space without memory addresses, which differ between processes."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", str(space))


def inner_spaces(space: gymnasium.Space[Any]) -> Mapping[Any, gymnasium.Space[Any]] | None:
    """Returns the spaces in a `Dict` or `Tuple` by key or index, in order; None for others."""
    if isinstance(space, spaces.Dict):
        return space.spaces
    return dict(enumerate(space.spaces)) if isinstance(space, spaces.Tuple) else None


def below(path: str, key: Any) -> str:
    """Returns the path of the entry `key` inside the entry at `path`."""
    return f"{path}/{key}".lstrip("/")


def outside(
    space: gymnasium.Space[Any], value: Any, path: str = ""
) -> tuple[str, gymnasium.Space[Any], Any] | None:
    """Finds the first part of a value that its space does not contain.

    Returns:
        The path, space and value of the part; None if the space contains the whole value. A
        dictionary or tuple with the wrong structure is reported as a whole.
    """
    inner = inner_spaces(space)
    if isinstance(space, spaces.Dict):
        fits = isinstance(value, dict) and value.keys() == space.spaces.keys()
    else:
        fits = isinstance(value, tuple | list) and len(value) == len(inner or ())
    if inner is not None and fits:
        found = (outside(part, value[key], below(path, key)) for key, part in inner.items())
        return next(filter(None, found), None)
    return None if value in space else (path, space, value)


def first_outside(space: gymnasium.Space[Any], value: np.ndarray) -> str | None:
    """Describes the first number of an array that is outside the bounds of its space, if any.

    Args:
        space: The space. Only `Box` and `MultiDiscrete` are supported; None is returned for others.
        value: An array of numbers with the shape of the space.

    Returns:
        The index, the value and the bounds, such as "index 3 is 1.5, outside [0.0, 1.0]".
    """
    if isinstance(space, spaces.Box):
        low, high = space.low, space.high
    elif isinstance(space, spaces.MultiDiscrete):
        low, high = space.start, space.start + space.nvec - 1
    else:
        return None
    outside = np.argwhere(~((value >= low) & (value <= high)))
    if not len(outside):
        return None
    at, more = tuple(outside[0]), len(outside) - 1
    told = f"{index_text(at)} is {value[at]}, outside [{low[at]}, {high[at]}]"
    return told + (f" ({more} more outside)" if more else "")


def first_not_finite(value: Any, path: str = "") -> str | None:
    """Describes the first number of an observation that is NaN or infinite in float32, if any.

    Args:
        value: An array, or dictionaries, lists and tuples of arrays. Text is ignored.
        path: Path of the entry, for the description.

    Returns:
        The value and its position, such as "nan at index 3 of entry 'pose'".
    """
    inner: Any = None
    if isinstance(value, Mapping):
        inner = value.items()
    elif isinstance(value, tuple | list):
        inner = enumerate(value)
    if inner is not None:
        found = (first_not_finite(part, below(path, key)) for key, part in inner)
        return next(filter(None, found), None)
    array = np.asarray(value)
    if array.dtype.kind in "US":
        return None
    with np.errstate(over="ignore"):
        finite = np.isfinite(np.asarray(array, np.float32))
    if finite.all():
        return None
    at = tuple(np.argwhere(~finite)[0])
    position = f" at {index_text(at)}" if at else ""
    return f"{array[at]}{position}" + (f" of entry {path!r}" if path else "")


def index_text(at: Sequence[int]) -> str:
    """Describes the position of a number in an array, such as "index 3" or "index (0, 3)"."""
    if not len(at):
        return "the value"
    return f"index {at[0]}" if len(at) == 1 else f"index ({', '.join(map(str, at))})"


def text_of(space: gymnasium.Space[Any]) -> str:
    """Describes a space in one line, as Gymnasium does but shorter.

    Long bounds are shown as a range. A `Text` with many characters is described by its lengths.
    """
    if isinstance(space, spaces.Dict):
        return f"Dict({', '.join(f'{k!r}: {text_of(v)}' for k, v in space.spaces.items())})"
    if isinstance(space, spaces.Tuple | spaces.OneOf):
        return f"{type(space).__name__}({', '.join(text_of(inner) for inner in space.spaces)})"
    if isinstance(space, spaces.Sequence):
        return f"Sequence({text_of(space.feature_space)}, stack={space.stack})"
    if isinstance(space, spaces.Box):
        low, high = _folded(space.low), _folded(space.high)
        return f"Box({low}, {high}, {space.shape}, {space.dtype})"
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.size > _MOST:
        return f"MultiDiscrete({_folded(space.nvec)}, {space.shape})"
    if isinstance(space, spaces.Text) and len(space.character_set) > _MOST_LETTERS:
        return f"Text({space.min_length}, {space.max_length})"
    return " ".join(described(space).split())


def _folded(numbers: np.ndarray) -> str:
    if numbers.size and (numbers == numbers.flat[0]).all():
        return str(numbers.flat[0])
    if numbers.size <= _MOST:
        return f"[{', '.join(map(str, numbers.ravel()))}]"
    return f"{numbers.min()} to {numbers.max()}"
