"""Spaces as people read them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from eagerly.spaces.ignoring import described

_MOST = 8  # numbers of a bound that are written out


def text_of(space: gymnasium.Space[Any]) -> str:
    """Writes a space on one line, as Gymnasium does; of many different bounds only the range."""
    if isinstance(space, spaces.Dict):
        return f"Dict({', '.join(f'{k!r}: {text_of(v)}' for k, v in space.spaces.items())})"
    if isinstance(space, spaces.Tuple):
        return f"Tuple({', '.join(text_of(inner) for inner in space.spaces)})"
    if isinstance(space, spaces.Box):
        low, high = _folded(space.low), _folded(space.high)
        return f"Box({low}, {high}, {space.shape}, {space.dtype})"
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.size > _MOST:
        return f"MultiDiscrete({_folded(space.nvec)}, {space.shape})"
    return described(space)


def _folded(numbers: np.ndarray) -> str:
    if numbers.size and (numbers == numbers.flat[0]).all():
        return str(numbers.flat[0])
    if numbers.size <= _MOST:
        return f"[{', '.join(map(str, numbers.ravel()))}]"
    return f"{numbers.min()} to {numbers.max()}"
