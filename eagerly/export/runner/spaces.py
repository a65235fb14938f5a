"""Converts observations and masks of the environment to arrays, and reports invalid ones."""

from __future__ import annotations

import math
import reprlib
from typing import Any

import numpy as np


def inner_spaces(space: dict[str, Any]) -> list[tuple[Any, dict[str, Any]]] | None:
    """Returns the subspaces of a `Dict` or `Tuple` by key or index, or None for other spaces."""
    if "Dict" in space:
        return [(key, inner) for key, inner in space["Dict"]]
    return list(enumerate(space["Tuple"])) if "Tuple" in space else None


def leaf(space: dict[str, Any]) -> tuple[tuple[int, ...], np.dtype[Any], tuple[int, ...]]:
    """Returns the shape and dtype of a space, and the number of values of each choice."""
    ((kind, about),) = space.items()
    if kind == "Box":
        return tuple(about[0]), np.dtype(about[1]), ()
    if kind == "MultiBinary":
        shape = tuple(np.atleast_1d(about).tolist())
        return shape, np.dtype(np.int8), (2,) * math.prod(shape)
    dtype = np.dtype(about[2] if len(about) > 2 else np.int64)
    return np.shape(about[0]), dtype, tuple(np.ravel(about[0]).tolist())


def floats(value: Any) -> np.ndarray | None:
    """Converts a value to float32; returns None if it is not numeric."""
    try:
        return np.asarray(value, np.float32)
    except (TypeError, ValueError, OverflowError):
        return None


def described(value: Any) -> str:
    """Describes an invalid value: the shape of an array, else the value itself."""
    array = _array(value)
    if array.dtype == object or not array.ndim:
        return f"{reprlib.repr(value)} ({type(value).__name__})"
    return f"{array.shape}" if array.dtype.kind in "biuf" else f"{array.shape} of {array.dtype}"


def _array(value: Any) -> np.ndarray:
    """Converts a value to an array; ragged lists become a 0-d array of dtype object."""
    try:
        return np.asarray(value)
    except ValueError:
        return np.empty((), object)


def below(path: str, key: Any) -> str:
    """Returns the path of an entry of a Dict or Tuple."""
    return f"{path}/{key}".lstrip("/")


def quoted(path: str) -> str:
    """Returns a path for messages: quoted, after a space; "" for the empty path."""
    return f" {path!r}" if path else ""


def entry_values(space: dict[str, Any], observation: Any, path: str, ignored: Any) -> Any:
    """Yields the value of each entry of an observation, in order, without ignored entries."""
    inner = inner_spaces(space)
    if inner is None:
        yield observation
        return
    names = [key for key, _ in inner]
    kept = {key: below(path, key) for key in names if below(path, key) not in ignored}
    if "Dict" in space:
        keys = set(observation) if hasattr(observation, "keys") else None
        if keys is None or not kept.keys() <= keys <= set(names):
            got = type(observation) if keys is None else list(observation)
            raise ValueError(
                f"observation{quoted(path)} must be a dictionary with keys {names}; got {got}"
            )
    elif not isinstance(observation, (tuple, list)) or len(observation) != len(names):
        raise ValueError(
            f"observation{quoted(path)} must be a tuple of length {len(names)}; got "
            f"{type(observation)}"
        )
    for key, part in inner:
        if key in kept:
            yield from entry_values(part, observation[key], kept[key], ignored)


def entry_columns(entry: dict[str, Any], value: Any) -> np.ndarray:
    """Validates the value of an entry and returns its columns `[..., n]` in the observation row."""
    shape, dtype, at = tuple(entry["shape"]), np.dtype(entry["dtype"]), quoted(entry["path"])
    array = _array(value)
    lead = array.shape[: array.ndim - len(shape)]
    if array.shape != (*lead, *shape) or len(lead) > 1:
        raise ValueError(f"observation{at} must have shape {shape}; got {described(value)}")
    casts = entry["kind"] != "image" and np.can_cast(array.dtype, dtype, "same_kind")
    if array.dtype != dtype and not casts:
        raise ValueError(f"observation{at} must have dtype {dtype}; got {array.dtype}")
    if entry["kind"] != "choice":
        return array.reshape((*lead, entry["stop"] - entry["start"]))
    sizes, firsts = np.array(entry["sizes"]), np.array(entry["firsts"])
    indices = array.reshape((*lead, len(sizes))).astype(np.int64) - firsts
    if ((indices < 0) | (indices >= sizes)).any():
        raise ValueError(
            f"observation{at} must be in its space, with {sizes.tolist()} values starting at "
            f"{firsts.tolist()}; got {array.tolist()}"
        )
    hot = np.zeros((*lead, int(sizes.sum())), np.float32)
    np.put_along_axis(hot, indices + np.cumsum([0, *sizes[:-1]]), 1.0, axis=-1)
    return hot


def choice_masks(space: dict[str, Any], given: Any, path: str) -> Any:
    """Yields the name and the mask `[..., n]` of each choice."""
    inner = inner_spaces(space)
    if inner is not None:
        names = {key for key, _ in inner}
        if given is not None:
            if not hasattr(given, "keys") and not isinstance(given, tuple):
                raise ValueError(f"{path} must have the entries {sorted(names)}; got {type(given)}")
            keys = set(given) if hasattr(given, "keys") else set(range(len(given)))
            keys -= {f"_{key}" for key in keys} - names  # Gymnasium's vector environments add these
            if keys != names:
                raise ValueError(f"{path} must have the entries {sorted(names)}; got {keys}")
        for key, part in inner:
            yield from choice_masks(part, None if given is None else given[key], f"{path}[{key!r}]")
        return
    if isinstance(given, np.ndarray) and given.size and all(part is None for part in given.ravel()):
        given = None
    if "Box" in space:
        if given is not None:
            raise ValueError(f"{path} must be None for a Box, which has no choices; got {given}")
        return
    shape, _, sizes = leaf(space)
    if given is None:
        yield from ((path, np.ones(size, bool)) for size in sizes)
        return
    if "Discrete" in space:
        given = (given,)
    elif "MultiBinary" in space:
        # In a mask, 0 and 1 force that value, and 2 allows both values.
        asked = _array(given)
        lead = asked.shape[: asked.ndim - len(shape)]
        if asked.shape != (*lead, *shape) or len(lead) > 1:
            raise ValueError(f"{path} must have shape {shape}; got {described(given)}")
        if not np.isin(asked, (0, 1, 2)).all():
            raise ValueError(f"{path} must contain only 0, 1 and 2; got {asked.tolist()}")
        bits = np.moveaxis(asked.reshape((*lead, -1)), -1, 0)
        given = tuple(np.stack([part != 1, part != 0], axis=-1) for part in bits)
    elif len(shape) != 1:
        raise ValueError(
            f"{path}: only a MultiDiscrete with one axis can be masked; got shape {shape}"
        )
    if not isinstance(given, tuple) or len(given) != len(sizes):
        raise ValueError(
            f"{path} must be a tuple of {len(sizes)} masks; got {described(given)} (a list is "
            "a batch, with one mask per observation)"
        )
    for index, (part, size) in enumerate(zip(given, sizes)):  # noqa: B905
        at = path if "Discrete" in space else f"{path}[{index}]"
        array = np.ones(size, bool) if part is None else _array(part)
        if array.ndim not in (1, 2) or array.shape[-1] != size:
            raise ValueError(f"{at} must have shape ({size},); got {described(part)}")
        if array.dtype.kind not in "biuf" or not ((array == 0) | (array == 1)).all():
            raise ValueError(f"{at} must contain only 0 and 1; got {array.tolist()}")
        yield at, array == 1
