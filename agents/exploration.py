"""Noise that is added to actions while exploring; in NumPy, because it is needed at every step."""

from __future__ import annotations

from typing import Any

import numpy as np


class GaussianNoise:
    """Independent normal noise for every environment and dimension.

    Args:
        scale: Standard deviation, in units of [-1, 1].
        seed: Its seed.
    """

    def __init__(self, scale: float, seed: np.random.SeedSequence) -> None:
        self._scale = scale
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def __call__(self, actions: np.ndarray) -> np.ndarray:
        """Adds noise to actions `[N, A]` and keeps them in [-1, 1]."""
        noise = self._generator.standard_normal(actions.shape, np.float32)
        noise *= self._scale
        return np.clip(actions + noise, -1.0, 1.0)

    @property
    def random_state(self) -> dict[str, Any]:
        """The state of the generator, plain numbers that JSON can hold."""
        return dict(self._generator.bit_generator.state)

    @random_state.setter
    def random_state(self, state: dict[str, Any]) -> None:
        self._generator.bit_generator.state = state
