"""Saves and restores the state that determines a run's next step.

A state is a dictionary of numbers, strings, booleans, None, NumPy arrays, and nested lists and
dictionaries. `flatten_state` extracts the arrays, so that the rest is JSON; `unflatten_state`
inserts them again. Subclasses of `Saved` only list the attributes that form their state.
"""

from __future__ import annotations

import _thread
import hashlib
import json
import math
import re
from collections.abc import Collection, Iterator, Mapping
from fractions import Fraction
from typing import Any, ClassVar, Protocol

import numpy as np

_ARRAY = "__array__"
# Long enough for sums of the exact values of any decimal float, such as 0.3333333333333333.
_FRACTION = re.compile(r"\d{1,400}(/[1-9]\d{0,399})?")


class Stateful(Protocol):
    """An object whose state can be saved and restored."""

    def state(self) -> dict[str, Any]:
        """Returns the state that determines the next step. Arrays may be views."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores the result of `state` in an object created with the same arguments.

        Raises:
            ValueError, KeyError, TypeError: If the state does not fit this object.
        """


class Saved:
    """Base class of objects that declare their state.

    A saved value is accepted only if it matches the attribute's current value. It must have the
    same type and be finite, and an integer must be at least 0. An array must have the same dtype,
    and the same shape unless the current array is empty. Unless the current value is empty, a
    dictionary must have at least its keys, and a list or tuple must have its length. If the current
    value is None, a number or None is accepted. Nested objects with a `restore` method restore
    themselves. The keys of dictionaries are text.

    Attributes:
        _saved: Names of the saved attributes. Leading underscores are dropped in the state.
        _compared: Names of further saved attributes, whose saved and current values must be equal.
    """

    _saved: ClassVar[tuple[str, ...]] = ()
    _compared: tuple[str, ...] = ()

    def state(self) -> dict[str, Any]:
        """Returns the state that determines the next step.

        Raises:
            ValueError: If `restore` would reject a value.
        """
        kind, names = type(self).__name__, (*self._compared, *self._saved)
        keys = {name.lstrip("_"): name for name in names}
        return {key: _value(getattr(self, keys[key]), f"{key} of {kind}") for key in keys}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores the result of `state` in an object created with the same arguments.

        Raises:
            ValueError: If the state belongs to a different class, or contains a value that no run
                can produce.
        """
        kind = type(self).__name__
        names = {name.lstrip("_"): name for name in (*self._compared, *self._saved)}
        check_keys(kind, state, names)
        values = {}
        for key, name in names.items():
            own = getattr(self, name)
            values[key] = _taken(own, state[key], f"{key} of {kind}")
            if name in self._compared and values[key] != own:
                raise ValueError(f"{key} of {kind} must be {own}; got {values[key]}")
        self._check(values)
        for key, name in names.items():
            if name not in self._compared:
                setattr(self, name, values[key])

    def _check(self, values: dict[str, Any]) -> None:
        """Validates restored values, whose types, dtypes and shapes were already checked.

        Raises:
            ValueError: If a value is impossible. The message names the value.
        """


class Lock(_thread.RLock):  # type: ignore[misc]
    """A reentrant lock for attributes of objects that can be copied and pickled.

    A copy is a new lock.
    """

    def __reduce__(self) -> tuple[type[Lock], tuple[()]]:
        return Lock, ()


def sealed(document: Mapping[str, Any]) -> bytes:
    """Returns a document as JSON with an embedded checksum."""
    content = {**document, "sha256": checksum(document)}
    return json.dumps(content, indent=1).encode() + b"\n"


def checksum(document: Any) -> str:
    """Returns the SHA-256 of a JSON document, independent of its formatting."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def check_keys(kind: str, state: Any, names: Collection[str]) -> None:
    """Raises a `ValueError` unless the state of a `kind` is a dictionary with these names."""
    if not isinstance(state, Mapping) or state.keys() != {*names}:
        found = sorted(map(str, state)) if isinstance(state, Mapping) else state
        raise _refused(f"the state of {kind}", f"a dictionary of {sorted(names)}", found)


def _value(own: Any, name: str) -> Any:
    """Converts an attribute to its saved form, if `_taken` can convert it back."""
    if hasattr(own, "restore"):
        return own.state()
    if isinstance(own, np.random.Generator):
        return dict(own.bit_generator.state)
    if isinstance(own, Mapping):
        if not all(isinstance(key, str) for key in own):
            raise _refused(name, "a dictionary whose keys are text", own)
        return {key: _value(part, f"{key} of {name}") for key, part in own.items()}
    if isinstance(own, list | tuple):
        return [_value(part, name) for part in own]
    if isinstance(own, Fraction):
        return str(own)
    return _taken(own, own, name)


def _taken(own: Any, saved: Any, name: str) -> Any:
    """Converts a saved value back to its attribute form, if it matches the current value."""
    if hasattr(own, "restore"):
        own.restore(saved)
        return own
    if isinstance(own, np.random.Generator):
        own.bit_generator.state = saved
        return own
    if isinstance(own, np.ndarray):
        is_numeric = own.dtype.kind in "biufc"
        fits = is_numeric and isinstance(saved, np.ndarray) and saved.dtype == own.dtype
        if not (fits and (saved.shape == own.shape or not own.size) and np.isfinite(saved).all()):
            raise _refused(name, f"a finite array of {own.dtype} {own.shape}", saved)
        return saved.copy()
    if isinstance(own, Mapping) and own:
        if not isinstance(saved, Mapping) or own.keys() - saved.keys():
            raise _refused(name, f"a dictionary of {sorted(own)}", saved)
        return {
            key: _taken(own[key], part, f"{key} of {name}") if key in own else part
            for key, part in saved.items()
        }
    if isinstance(own, tuple):
        return tuple(_taken([*own], saved, name))
    if isinstance(own, list) and own:
        if not isinstance(saved, list) or len(saved) != len(own):
            raise _refused(name, f"a list of length {len(own)}", saved)
        return [_taken(*each, name) for each in zip(own, saved, strict=True)]
    if isinstance(own, Fraction):
        if not (isinstance(saved, str) and _FRACTION.fullmatch(saved)):
            raise _refused(name, "a fraction", saved)
        return Fraction(saved)
    return _plain(own, saved, name)


def _plain(own: Any, saved: Any, name: str) -> Any:
    """Returns a saved value that has no nested values, if it matches the current one."""
    if own is None or isinstance(own, float):
        fits = isinstance(saved, int | float) and not isinstance(saved, bool)
        if not (fits and math.isfinite(saved)) and not (own is None and saved is None):
            raise _refused(name, "a finite number", saved)
        return None if saved is None else float(saved)
    if type(saved) is not type(own) or (type(own) is int and saved < 0):
        expected = "an integer of at least 0" if type(own) is int else type(own).__name__
        raise _refused(name, expected, saved)
    return saved


def _refused(name: str, expected: str, saved: Any) -> ValueError:
    if isinstance(saved, np.ndarray):
        finite = "" if saved.dtype.kind not in "fc" or np.isfinite(saved).all() else ", not finite"
        return ValueError(f"{name} must be {expected}; got {saved.dtype} {saved.shape}{finite}")
    return ValueError(f"{name} must be {expected}; got {str(saved)[:200]}")


def flatten_state(state: Any, name: str = "") -> tuple[Any, dict[str, np.ndarray]]:
    """Splits a state into JSON and arrays by name.

    Args:
        state: The state.
        name: Prefix of the array names.

    Raises:
        TypeError: If the state holds an unsupported value, such as a NumPy scalar or a set. The
            message names it.
        ValueError: If the names of two arrays, made of their keys and dots, are equal.
    """
    arrays: dict[str, np.ndarray] = {}
    for each, array in _arrays(state, name):
        if each in arrays:
            raise ValueError(f"a state has two arrays with the name {each}: rename a key")
        arrays[each] = array
    return _without(state, name), arrays


def unflatten_state(document: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Inserts the arrays that `flatten_state` extracted.

    Raises:
        KeyError: If an array is missing.
    """
    if isinstance(document, dict):
        if document.keys() == {_ARRAY}:
            return arrays[document[_ARRAY]]
        return {key: unflatten_state(value, arrays) for key, value in document.items()}
    if isinstance(document, list):
        return [unflatten_state(value, arrays) for value in document]
    return document


def packed(state: Any) -> dict[str, np.ndarray]:
    """Packs a state that is too large for JSON into two arrays of bytes.

    Returns:
        A dictionary with two entries: "text" is the state without its arrays, as JSON; "values" are
        the contents of the arrays.

    Raises:
        TypeError: As in `flatten_state`.
    """
    document, arrays = flatten_state(state)
    headers = [(name, array.dtype.str, array.shape) for name, array in arrays.items()]
    text = json.dumps([document, headers]).encode()
    values = b"".join(array.tobytes() for array in arrays.values())
    return {"text": np.frombuffer(text, np.uint8), "values": np.frombuffer(values, np.uint8)}


def unpacked(parts: Mapping[str, np.ndarray]) -> Any:
    """Returns the state that was passed to `packed`; tuples become lists.

    Raises:
        ValueError, KeyError, TypeError: If the two arrays do not belong together.
    """
    document, headers = json.loads(parts["text"].tobytes())
    values, arrays, start = parts["values"].tobytes(), {}, 0
    for name, dtype, shape in headers:
        kind = np.dtype(dtype)
        if kind.kind not in "biuf":
            raise ValueError(f"{name} must be a numeric array; got dtype {kind}")
        size = kind.itemsize * math.prod(shape)
        content = bytearray(values[start : start + size])  # a bytearray makes the array writable
        arrays[name] = np.frombuffer(content, kind).reshape(shape)
        start += size
    return unflatten_state(document, arrays)


def _inner(state: Any, name: str) -> Iterator[tuple[Any, str, Any]]:
    """Yields the key, name and value of each item of a dictionary or list."""
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
            f"a state can hold numbers, strings, booleans, None, arrays, lists and dictionaries; "
            f"{name} is {type(state).__name__}: convert it to one of these"
        )
    return state
