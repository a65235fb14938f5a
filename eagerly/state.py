"""What a run's next step depends on: `state` gives it, `restore` takes it over, and nothing else.

A state is a dictionary of numbers, text, truth values and None, of NumPy arrays, and of lists and
dictionaries of all these. `split` takes the arrays out, so that the rest is JSON; `joined` puts
them back.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np

_ARRAY = "__array__"


class Stateful(Protocol):
    """Whatever has a state of its own."""

    def state(self) -> dict[str, Any]:
        """Returns everything that the next step depends on; arrays may be its own, uncopied."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state` returned, on an object made with the same arguments.

        Raises:
            ValueError: If it is the state of something else, as may be a KeyError or TypeError.
        """


def split(state: Any, name: str = "") -> tuple[Any, dict[str, np.ndarray]]:
    """Splits a state into JSON and the arrays by name.

    Args:
        state: The state.
        name: What the names of its arrays begin with.

    Raises:
        TypeError: If it holds something else, such as a NumPy scalar or a set, naming it.
    """
    arrays = dict(_arrays(state, name))
    return _without(state, name), arrays


def joined(document: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Puts arrays back to where `split` took them out.

    Raises:
        KeyError: If one is missing.
    """
    if isinstance(document, dict):
        if document.keys() == {_ARRAY}:
            return arrays[document[_ARRAY]]
        return {key: joined(value, arrays) for key, value in document.items()}
    if isinstance(document, list):
        return [joined(value, arrays) for value in document]
    return document


def packed(state: Any) -> dict[str, np.ndarray]:
    """Packs a state into two arrays of bytes, for one that is too large for JSON.

    Returns:
        The state without its arrays as JSON under "text", the content of its arrays under "values".

    Raises:
        TypeError: As `split` does.
    """
    document, arrays = split(state)
    headers = [(name, array.dtype.str, array.shape) for name, array in arrays.items()]
    text = json.dumps([document, headers]).encode()
    values = b"".join(array.tobytes() for array in arrays.values())
    return {"text": np.frombuffer(text, np.uint8), "values": np.frombuffer(values, np.uint8)}


def unpacked(parts: Mapping[str, np.ndarray]) -> Any:
    """Returns the state that `packed` was given; tuples become lists.

    Raises:
        ValueError: If the parts do not belong together, as may be a KeyError or TypeError.
    """
    document, headers = json.loads(parts["text"].tobytes())
    values, arrays, start = parts["values"].tobytes(), {}, 0
    for name, dtype, shape in headers:
        kind = np.dtype(dtype)
        if kind.kind not in "biuf":
            raise ValueError(f"{name} is an array of {kind}, not of numbers")
        size = kind.itemsize * math.prod(shape)
        content = bytearray(values[start : start + size])  # writable, as the array was
        arrays[name] = np.frombuffer(content, kind).reshape(shape)
        start += size
    return joined(document, arrays)


def _inner(state: Any, name: str) -> Iterator[tuple[Any, str, Any]]:
    """Yields key, name and value of each part."""
    parts = state.items() if isinstance(state, Mapping) else enumerate(state)
    for key, value in parts:
        yield key, f"{name}.{key}" if name else str(key), value


def _arrays(state: Any, name: str) -> Iterator[tuple[str, np.ndarray]]:
    if isinstance(state, np.ndarray):
        yield name, state
    elif isinstance(state, Mapping | list | tuple):
        for _, inner, value in _inner(state, name):
            yield from _arrays(value, inner)


def _without(state: Any, name: str) -> Any:
    if isinstance(state, np.ndarray):
        return {_ARRAY: name}
    if isinstance(state, Mapping):
        return {key: _without(value, inner) for key, inner, value in _inner(state, name)}
    if isinstance(state, list | tuple):
        return [_without(value, inner) for _, inner, value in _inner(state, name)]
    if not (state is None or isinstance(state, bool | int | float | str)):
        raise TypeError(
            f"a state holds numbers, text, truth values, None, arrays, lists and dictionaries; "
            f"{name} is {type(state).__name__}: make it one of these"
        )
    return state
