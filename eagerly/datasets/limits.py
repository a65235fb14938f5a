"""Checks that data files declare consistent and plausible sizes, before memory is allocated."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from eagerly.errors import UsageError

# A file may declare up to this many times its own size, plus the slack. Recorded numbers compress
# by less; files that declare more would only fill memory.
_MOST_EXPANSION, _SLACK_BYTES = 100, 2**24


def check_lengths(path: str, lengths: Mapping[str, int]) -> None:
    """Validates that all fields have the same number of steps.

    Raises:
        UsageError: If two fields differ.
    """
    (name, length), *others = lengths.items()
    for other, count in others:
        if count != length:
            raise UsageError(
                f"{path}: all fields must have the same length; got {length:,} steps of {name}, "
                f"but {count:,} of {other}"
            )


def check_size(path: str, declared: int, stored: int) -> None:
    """Validates the size of decompressed data.

    Args:
        path: The data file, for messages.
        declared: Size of the data in bytes, as its headers declare it.
        stored: Size of the file in bytes.

    Raises:
        UsageError: If the file is far too small for the data.
    """
    most = _MOST_EXPANSION * stored + _SLACK_BYTES
    if declared > most:
        raise UsageError(
            f"{path}: a file of {stored:,} bytes must contain at most {most:,} bytes of data; got "
            f"headers that declare {declared:,}"
        )


def size_of(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Returns the size of an array in bytes, without overflow."""
    return math.prod(shape) * dtype.itemsize
