"""Spaces: what is supported, and the one place where actions change units."""

from __future__ import annotations

import gymnasium
import numpy as np


def observation_size(space: gymnasium.Space) -> int:
    """Returns O, the length of an observation of a flat `Box`.

    Raises:
        ValueError: If the space is anything else.
    """
    if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1 or not space.shape[0]:
        raise ValueError(
            f"observations must be a flat Box of shape (O,); got {space}. "
            "Wrap the environment, for example in gymnasium.wrappers.FlattenObservation."
        )
    return int(space.shape[0])


class ActionBounds:
    """Converts actions between [-1, 1], used everywhere inside, and an environment's `Box`.

    Every dimension has its own bounds, which need not be symmetric.

    Args:
        space: A `Box` of shape `(A,)` with finite bounds and a floating dtype.

    Raises:
        ValueError: If the space is not such a `Box`; the message names what is supported.
    """

    def __init__(self, space: gymnasium.Space) -> None:
        supported = "actions must be a flat, bounded, floating-point Box of shape (A,)"
        if not isinstance(space, gymnasium.spaces.Box):
            raise ValueError(f"{supported}; got {space}. Discrete actions are not supported.")
        if len(space.shape) != 1 or not space.shape[0]:
            raise ValueError(
                f"{supported}; got shape {space.shape}. Flatten it with a "
                "gymnasium.wrappers.TransformAction."
            )
        if not np.issubdtype(space.dtype, np.floating):
            raise ValueError(f"{supported}; got dtype {space.dtype}.")
        if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise ValueError(
                f"{supported}; got low {space.low.tolist()}, high {space.high.tolist()}. "
                "Bound it with gymnasium.wrappers.RescaleAction or ClipAction."
            )
        if not (space.low < space.high).all():
            raise ValueError(
                f"{supported} with low < high in every dimension; "
                f"got low {space.low.tolist()}, high {space.high.tolist()}."
            )
        self.low, self.high, self.dtype = space.low, space.high, space.dtype
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        self._center, self._scale = (high + low) / 2, (high - low) / 2

    @property
    def size(self) -> int:
        """A, the length of an action."""
        return int(self.low.shape[0])

    def to_environment(self, actions: np.ndarray) -> np.ndarray:
        """Maps `[..., A]` in [-1, 1] to the environment's units; the result lies in the `Box`."""
        scaled = (self._center + self._scale * actions).astype(self.dtype)
        np.maximum(scaled, self.low, out=scaled)
        return np.minimum(scaled, self.high, out=scaled)
