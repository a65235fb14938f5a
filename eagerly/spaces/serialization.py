"""Converts spaces to JSON and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from eagerly.spaces.actions import Actions
from eagerly.spaces.description import described, text_of
from eagerly.spaces.ignoring import UnreadSpace
from eagerly.spaces.observations import Observations

_LARGEST = 2**24  # maximum number of elements in a Box or discrete space read from a file
_SUPPORTED = spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary


def document_of(space: gymnasium.Space[Any], *, describe: bool = False) -> dict[str, Any]:
    """Converts a space to a JSON document.

    Args:
        space: The space.
        describe: Whether to save spaces that are unsupported or larger than `space_of` allows as a
            text description, which `space_of` restores as an `UnreadSpace`.

    Raises:
        ValueError: If the space is not supported and `describe` is False.
    """
    if isinstance(space, spaces.Dict):
        parts = space.spaces.items()
        return {"Dict": [[key, document_of(inner, describe=describe)] for key, inner in parts]}
    if isinstance(space, spaces.Tuple):
        return {"Tuple": [document_of(inner, describe=describe) for inner in space.spaces]}
    if isinstance(space, spaces.Text):
        # Sorted, because the order of a set differs between processes.
        letters = "".join(sorted(space.character_list))
        return {"Text": [space.min_length, space.max_length, letters]}
    if describe and not (isinstance(space, _SUPPORTED) and spaces.flatdim(space) <= _LARGEST):
        return {"Unread": space.description if isinstance(space, UnreadSpace) else described(space)}
    if isinstance(space, spaces.Discrete):
        return {"Discrete": [int(space.n), int(space.start), *_named(space)]}
    if isinstance(space, spaces.MultiDiscrete):
        starts = np.broadcast_to(getattr(space, "start", 0), space.nvec.shape)
        return {"MultiDiscrete": [space.nvec.tolist(), starts.tolist(), *_named(space)]}
    if isinstance(space, spaces.MultiBinary):
        return {"MultiBinary": list(space.shape) if len(space.shape) > 1 else space.shape[0]}
    if isinstance(space, spaces.Box):
        ends = [_bounds(end) for end in (space.low, space.high)]
        return {"Box": [list(space.shape), np.dtype(space.dtype).name, *ends]}
    raise ValueError(f"{space} cannot be converted to JSON")


def space_of(document: Mapping[str, Any]) -> gymnasium.Space[Any]:
    """Restores a space from the result of `document_of`.

    Raises:
        ValueError: If the document is invalid.
    """
    if len(document) != 1:
        raise ValueError(f"not a space: {document!r}")
    ((kind, value),) = document.items()
    if kind == "Dict":
        # Passed as pairs, because Gymnasium sorts the keys of a dictionary.
        return spaces.Dict([(str(key), space_of(inner)) for key, inner in value])
    if kind == "Tuple":
        return spaces.Tuple([space_of(inner) for inner in value])
    if kind == "Discrete":
        count, start = int(value[0]), int(value[1])
        return spaces.Discrete(_limited(count), start=start, dtype=_integers(value[2:]))
    if kind == "MultiDiscrete":
        counts, starts = (np.array(part, np.int64) for part in value[:2])
        _limited(int(counts.sum()))
        return spaces.MultiDiscrete(counts, dtype=_integers(value[2:]), start=starts)
    if kind == "MultiBinary":
        _limited(math.prod(np.atleast_1d(value).tolist()))
        return spaces.MultiBinary(value)
    if kind == "Text":
        least, most = map(int, value[:2])
        return spaces.Text(most, min_length=least, charset=str(value[2]))
    if kind == "Unread":
        return UnreadSpace(str(value))
    if kind == "Box":
        shape, name = tuple(map(int, value[0])), str(value[1])
        _limited(math.prod(shape), least=0)
        dtype = np.dtype(name)
        low, high = (_end(part, shape, dtype) for part in value[2:])
        return spaces.Box(low, high, dtype=dtype.type)
    raise ValueError(f"not a space: {kind!r}")


def _bounds(end: np.ndarray) -> Any:
    """Returns a bound as exact text: one string if all dimensions agree, otherwise a list."""
    texts = [str(number) for number in np.unique(end)]
    return texts[0] if len(texts) == 1 else [str(number) for number in end.ravel()]


def _end(part: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    # Integers are not read as floats, which cannot represent large ones exactly.
    def read(text: str) -> Any:
        if dtype.kind == "b":
            return text == "True"
        return float(text) if dtype.kind == "f" else int(text)

    numbers = np.array([read(text) for text in ([part] if isinstance(part, str) else part)], dtype)
    return np.full(shape, numbers[0]) if len(numbers) == 1 else numbers.reshape(shape)


def _named(space: gymnasium.Space[Any]) -> list[str]:
    """Returns the dtype of a discrete space by name, or nothing for the default, int64."""
    dtype = np.dtype(space.dtype)
    return [] if dtype == np.int64 else [dtype.name]


def _integers(given: list[Any]) -> type[np.integer[Any]]:
    """Returns the dtype written by `_named`."""
    dtype = np.dtype(str(given[0]) if given else np.int64)
    if not issubclass(dtype.type, np.integer):
        raise ValueError(f"choices must have an integer dtype; got {dtype}")
    return dtype.type


def _limited(count: int, least: int = 1) -> int:
    if not least <= count <= _LARGEST:
        raise ValueError(f"a space must have between {least} and 2**24 numbers; got {count}")
    return count


def recorded_spaces(
    observations: Observations, actions: Actions, *, custom_models: bool
) -> dict[str, object]:
    """Returns the JSON description of the spaces that a saved policy needs.

    Args:
        observations: The observations.
        actions: The actions.
        custom_models: Whether there are custom models, whose factories need the original spaces.
            Without them, the observation size and the action bounds are enough if both spaces are
            flat.
    """
    if custom_models or not (observations.is_row and actions.is_row):
        # No network reads ignored entries, so a description is sufficient.
        observation = document_of(observations.space, describe=bool(observations.ignored))
        return {"observation": observation, "action": document_of(actions.space)}
    return {
        "observation_size": observations.size,
        "action_low": actions.low.tolist(),
        "action_high": actions.high.tolist(),
        "action_dtype": actions.dtype.name,
    }


def restored_spaces(spaces: Mapping[str, Any]) -> tuple[gymnasium.Space, gymnasium.Space]:
    """Restores the observation and action spaces from the result of `recorded_spaces`.

    Raises:
        ValueError, KeyError, TypeError: If the document is invalid.
    """
    if "observation" in spaces:
        return space_of(spaces["observation"]), space_of(spaces["action"])
    dtype = np.dtype(str(spaces["action_dtype"]))
    low, high = (np.array(spaces[name], dtype) for name in ("action_low", "action_high"))
    actions = gymnasium.spaces.Box(low, high, dtype=dtype.type)
    size = int(spaces["observation_size"])
    if size > _LARGEST:
        raise ValueError(f"observations must have at most 2**24 numbers; got {size}")
    return gymnasium.spaces.Box(-np.inf, np.inf, (size,)), actions


def spaces_text(spaces: Mapping[str, Any]) -> str:
    """Describes the result of `recorded_spaces` in one line; invalid documents are unchanged."""
    try:
        observation, action = map(text_of, restored_spaces(spaces))
    except Exception:  # a run directory is untrusted input
        return str(spaces)
    return f"observations {observation}, actions {action}"
