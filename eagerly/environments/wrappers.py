"""Wrappers that change observations: hidden, dropped or flickering ones, and images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from PIL import Image

from eagerly.environments.preprocessing import resized
from eagerly.environments.rendering import choose_renderer

Env = gymnasium.Env[Any, Any]
_LARGEST = 4096  # pixels


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
        outside = [index for index in hidden if index not in range(size)]
        if outside:
            raise ValueError(f"hidden coordinates must be integers in [0, {size}); got {outside}")
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

    Uses a separate generator, so that the environment's random numbers do not change. Several such
    wrappers choose independent steps. The observation returned by `reset` is never replaced.
    """

    def __init__(self, env: Env, probability: float) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self, probability=probability)
        super().__init__(env)
        if not 0.0 <= probability <= 1.0:
            raise ValueError(f"probability must be in [0, 1]; got {probability}")
        _flat(env)
        self._probability = probability
        self._key: tuple[int, ...] = (7,)  # differs from those of such wrappers inside this one
        layer: Any = env
        while isinstance(layer, gymnasium.Wrapper):
            self._key += (7,) * isinstance(layer, _Unreliable)
            layer = layer.env
        self._draws = np.random.default_rng(0)
        self._shown: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Resets the environment; a seed also reseeds the choice of steps."""
        if seed is not None:
            self._draws = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=self._key))
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
        size: Height and width of the images, in pixels, in [1, 4096].

    Raises:
        ValueError: If the render mode is not rgb_array or the size is out of range.
    """

    def __init__(self, env: Env, size: int) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self, size=size)
        super().__init__(env)
        _check_size(size=size)
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


class Resize(gymnasium.ObservationWrapper[Any, Any, Any], gymnasium.utils.RecordConstructorArgs):
    """Resizes image observations by averaging areas; see `preprocessing.resized`.

    Gymnasium's `ResizeObservation` requires OpenCV.

    Args:
        env: An environment with uint8 images `[H, W]` or `[H, W, C]`, where C is at most 4.
        height, width: New size in pixels, in [1, 4096].

    Raises:
        ValueError: If the observations are not such images, or a size is out of range.
    """

    def __init__(self, env: Env, height: int, width: int) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self, height=height, width=width)
        super().__init__(env)
        _check_size(height=height, width=width)
        space = env.observation_space
        shape = space.shape or ()
        is_image = isinstance(space, gymnasium.spaces.Box) and space.dtype == np.uint8
        if not is_image or len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] > 4):
            raise ValueError(
                "observations must be uint8 images of shape (H, W) or (H, W, C) with at most 4 "
                f"channels; got {space}. Resize images before stacking them."
            )
        self._size = height, width
        self.observation_space = gymnasium.spaces.Box(0, 255, (height, width, *shape[2:]), np.uint8)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        """Returns the resized image, uint8."""
        return resized(observation, *self._size)


def _check_size(**sizes: int) -> None:
    """Raises a `ValueError` if the size of an image is not an integer from 1 to 4096."""
    for name, size in sizes.items():
        if type(size) is not int or not 1 <= size <= _LARGEST:
            raise ValueError(f"{name} must be an integer from 1 to {_LARGEST}; got {size!r}")


def _flat(env: Env) -> gymnasium.spaces.Box:
    space = env.observation_space
    if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
        raise ValueError(
            f"observations must be a flat Box of shape (O,); got {space}. Wrap the environment "
            "in gymnasium.wrappers.FlattenObservation first."
        )
    return space
