"""Registers the partially observable environments with Gymnasium."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.envs.registration import WrapperSpec
from gymnasium.wrappers import FrameStackObservation

from eagerly.environments.wrappers import Flicker, HideCoordinates, Pictures

# For each id: the base environment, its number of coordinates and the indices of the hidden ones.
# With default arguments, MuJoCo observations are all positions, then all velocities. CartPole
# observations alternate positions and velocities.
POSITIONS = {
    "PendulumPositions-v1": ("Pendulum-v1", 3, range(2, 3)),
    "CartPolePositions-v1": ("CartPole-v1", 4, range(1, 4, 2)),
    "HalfCheetahPositions-v5": ("HalfCheetah-v5", 17, range(8, 17)),
    "HopperPositions-v5": ("Hopper-v5", 11, range(5, 11)),
    "Walker2dPositions-v5": ("Walker2d-v5", 17, range(8, 17)),
}

# For each id: the base environment. Half of the observations are replaced with zeros, as in
# Hausknecht and Stone (2015).
FLICKERING = {"PendulumFlickering-v1": "Pendulum-v1"}

# For each id: the base environment, shown as three 64x64 grayscale frames, newest last.
PIXELS = {"PendulumPixels-v1": "Pendulum-v1", "CartPolePixels-v1": "CartPole-v1"}


def register() -> None:
    """Registers the ids; repeated calls are harmless."""
    for name, base in PIXELS.items():
        pictures = Pictures.wrapper_spec(size=64), FrameStackObservation.wrapper_spec(stack_size=3)
        _register(name, base, {"render_mode": "rgb_array"}, *pictures)
    for name, (base, size, hidden) in POSITIONS.items():
        _register(name, base, {}, HideCoordinates.wrapper_spec(hidden=tuple(hidden), size=size))
    for name, base in FLICKERING.items():
        _register(name, base, {}, Flicker.wrapper_spec(probability=0.5))


def _register(name: str, base: str, kwargs: dict[str, Any], *wrappers: WrapperSpec) -> None:
    if name in gymnasium.registry:
        return
    spec = gymnasium.spec(base)
    gymnasium.register(
        name,
        entry_point=spec.entry_point,
        max_episode_steps=spec.max_episode_steps,
        reward_threshold=spec.reward_threshold,
        kwargs=spec.kwargs | kwargs,
        additional_wrappers=wrappers,
    )
