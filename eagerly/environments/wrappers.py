"""Wrappers that make environments partially observable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from PIL import Image

from eagerly.environments.rendering import choose_renderer

Env = gymnasium.Env[Any, Any]


class HideCoordinates(
    gymnasium.ObservationWrapper[Any, Any, Any], gymnasium.utils.RecordConstructorArgs
):
    """Removes coordinates from a flat observation.

    Args:
        env: An environment whose observations are a flat `Box` of size O.
        hidden: Indices of the coordinates to remove, in [0, O).
        size: Expected O; None accepts any.

    Raises:
        ValueError: If the observations are not a flat `Box`, O is not `size`, an index is out of
            range, or no coordinate would remain.
    """

    def __init__(self, env: Env, hidden: Sequence[int], size: int | None = None) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self, hidden=tuple(hidden), size=size)
        super().__init__(env)
        space = _flat(env)
        if size not in (None, space.shape[0]):
            raise ValueError(
                f"observations must have {size} coordinates; with these arguments the environment "
                f"has {space.shape[0]}: wrap it in HideCoordinates yourself"
            )
        size = space.shape[0]
        outside = [index for index in hidden if not 0 <= index < size]
        if outside:
            raise ValueError(f"hidden coordinates must be in [0, {size}); got {outside}")
        self._kept = np.setdiff1d(np.arange(size), np.array(hidden, np.int64))
        if not self._kept.size:
            raise ValueError(f"all {size} coordinates would be hidden: keep at least one")
        self.observation_space = gymnasium.spaces.Box(
            space.low[self._kept], space.high[self._kept], dtype=space.dtype.type
        )

    def observation(self, observation: np.ndarray) -> np.ndarray:
        """Returns the remaining coordinates of an observation."""
        return observation[self._kept]


class _Unreliable(gymnasium.Wrapper[Any, Any, Any, Any], gymnasium.utils.RecordConstructorArgs):
    """Replaces the observation at random steps, which depend on the episode's seed.

    Uses a separate generator, so that the environment's random numbers do not change. The
    observation returned by `reset` is never replaced.
    """

    def __init__(self, env: Env, probability: float) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self, probability=probability)
        super().__init__(env)
        if not 0.0 <= probability <= 1.0:
            raise ValueError(f"probability must be in [0, 1]; got {probability}")
        _flat(env)
        self._probability = probability
        self._draws = np.random.default_rng(0)
        self._shown: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Resets the environment; a seed also reseeds the choice of steps."""
        if seed is not None:
            self._draws = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(7,)))
        observation, info = self.env.reset(seed=seed, options=options)
        self._shown = np.array(observation)  # an environment may reuse its array
        return observation, info

    def step(self, action: Any) -> Any:
        """Steps the environment."""
        observation, *rest = self.env.step(action)
        if self._draws.random() < self._probability:
            observation = self._instead(observation)
        self._shown = np.array(observation)
        return observation, *rest

    def _instead(self, observation: np.ndarray) -> np.ndarray:
        raise NotImplementedError


class DropObservations(_Unreliable):
    """Repeats the previous observation at random steps, like a sensor that drops readings.

    Args:
        env: An environment whose observations are a flat `Box`.
        probability: Probability at each step, in [0, 1].

    Raises:
        ValueError: If the observations are not a flat `Box` or the probability is out of range.
    """

    def _instead(self, observation: np.ndarray) -> np.ndarray:
        return self._shown


class Flicker(_Unreliable):
    """Replaces the observation with zeros at random steps, like a camera that loses frames.

    Source: Hausknecht and Stone (2015), "Deep Recurrent Q-Learning for Partially Observable MDPs",
    which uses a probability of 0.5.

    Args:
        env: An environment whose observations are a flat `Box` that contains 0.
        probability: Probability at each step, in [0, 1].

    Raises:
        ValueError: If the observations are not a flat `Box` that contains 0, or the probability is
            out of range.
    """

    def __init__(self, env: Env, probability: float) -> None:
        super().__init__(env, probability)
        space = _flat(env)
        if not space.contains(np.zeros(space.shape, space.dtype)):
            raise ValueError(f"the observation space must contain 0, the replacement; got {space}")

    def _instead(self, observation: np.ndarray) -> np.ndarray:
        return np.zeros_like(observation)


class Pictures(gymnasium.ObservationWrapper[Any, Any, Any], gymnasium.utils.RecordConstructorArgs):
    """Replaces observations with small grayscale images of the environment.

    Args:
        env: An environment with render mode rgb_array.
        size: Height and width of the images, in pixels.

    Raises:
        ValueError: If the render mode is not rgb_array or the size is not positive.
    """

    def __init__(self, env: Env, size: int) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self, size=size)
        super().__init__(env)
        if size < 1:
            raise ValueError(f"size must be at least 1; got {size}")
        if env.render_mode != "rgb_array":
            raise ValueError(
                f"image observations require render_mode='rgb_array'; got {env.render_mode!r}"
            )
        choose_renderer()
        self._size = size
        self.observation_space = gymnasium.spaces.Box(0, 255, (size, size), np.uint8)

    def observation(self, observation: Any) -> np.ndarray:
        """Renders the environment in its current state, `[size, size]` uint8."""
        frame: Any = self.env.render()
        # BOX averages the source pixels under each output pixel.
        small = Image.fromarray(frame).convert("L").resize((self._size,) * 2, Image.Resampling.BOX)
        return np.asarray(small)


def _flat(env: Env) -> gymnasium.spaces.Box:
    space = env.observation_space
    if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
        raise ValueError(
            f"observations must be a flat Box of shape (O,); got {space}. Wrap the environment "
            "in gymnasium.wrappers.FlattenObservation first."
        )
    return space
