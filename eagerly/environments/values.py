"""Checks and copies of rewards, `info` entries and other values returned by environments."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np

EXECUTED = "executed_action"  # in `info`: the action after a safety layer, for example


class SpaceError(ValueError):
    """A value from an environment does not fit its space or Gymnasium's interface."""


def check_info(info: Any) -> None:
    """Raises `SpaceError` unless `info` is a dictionary."""
    if not isinstance(info, dict | Mapping):
        raise SpaceError(f"info must be a dictionary, such as {{}}; got {short(info)}")


def check_reward(reward: Any) -> None:
    """Raises `SpaceError` unless a reward is a number in float range; NaN is allowed."""
    if not isinstance(reward, numbers.Real) and not is_scalar(reward, "biuf"):
        raise SpaceError(f"reward must be a number; got {short(reward)}")
    try:
        float(reward)
    except OverflowError as error:
        raise SpaceError(f"reward must fit into a float; got {short(reward)}") from error


def numeric_items(info: Mapping[str, Any]) -> dict[str, float]:
    """Returns the finite numbers and booleans of an `info` dictionary, with their keys as text.

    Raises:
        SpaceError: If a number does not fit into a float or its key is not Unicode text.
    """
    found: dict[str, float] = {}
    for key, value in info.items():
        if not isinstance(value, numbers.Real | np.bool_):
            continue
        name = str(key)
        try:
            name.encode()
        except UnicodeEncodeError as error:  # an unpaired surrogate
            raise SpaceError(
                f"the key of a number in info must be Unicode text; got {key!r}: rename it"
            ) from error
        try:
            number = float(value)
        except OverflowError as error:
            raise SpaceError(f"info[{key!r}] must fit into a float; got {short(value)}") from error
        if math.isfinite(number):
            found[name] = number
    return found


def plain(value: Any) -> Any:
    """Returns a copy of an `info` entry that a checkpoint can hold, with NumPy scalars converted.

    Raises:
        TypeError: If the entry is not a number in float range, text, a boolean, None or an array of
            numbers.
    """
    expected = "a number in float range, text, a boolean, None or an array of numbers; got"
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return value.copy()
    if value is None or isinstance(value, bool | float | str):
        return value
    if isinstance(value, int):
        try:
            float(value)
        except OverflowError as error:
            raise TypeError(f"{expected} {short(value)}") from error
        return value
    what = f"array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
    raise TypeError(f"{expected} {what}")


def is_scalar(value: Any, kinds: str) -> bool:
    """Returns whether an array-like value has no axes and a dtype in `kinds`."""
    array = as_array(value)
    return array.ndim == 0 and array.dtype.kind in kinds


def as_array(value: Any) -> np.ndarray:
    """Returns a value as an array; ragged lists become an array of objects."""
    try:
        return np.asarray(value)
    except ValueError:
        return np.array([value, None], dtype=object)[:1]


def short(value: Any) -> str:
    """Returns the representation of a value for messages, truncated to 100 characters."""
    shape = f" of shape {np.shape(value)}" if isinstance(value, np.ndarray) else ""
    try:
        text = repr(value)
    except Exception:  # such as an integer beyond Python's limit of 4,300 digits
        text = f"<{type(value).__name__}>"
    return (text if len(text) <= 100 else text[:100] + "...") + shape
