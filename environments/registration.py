"""The ids of partly observed environments."""

from __future__ import annotations

import gymnasium

from eagerly.environments.wrappers import HideCoordinates

# Of each id: what it is made of, and the coordinates that are hidden. The observations of the
# MuJoCo environments are positions, then velocities, with their default arguments; of the cart-pole
# each position stands before its velocity.
POSITIONS = {
    "PendulumPositions-v1": ("Pendulum-v1", range(2, 3)),
    "CartPolePositions-v1": ("CartPole-v1", range(1, 4, 2)),
    "HalfCheetahPositions-v5": ("HalfCheetah-v5", range(8, 17)),
    "HopperPositions-v5": ("Hopper-v5", range(5, 11)),
    "Walker2dPositions-v5": ("Walker2d-v5", range(8, 17)),
}


def register() -> None:
    """Registers the ids; again is harmless."""
    for name, (base, hidden) in POSITIONS.items():
        if name in gymnasium.registry:
            continue
        spec = gymnasium.spec(base)
        gymnasium.register(
            name,
            entry_point=spec.entry_point,
            max_episode_steps=spec.max_episode_steps,
            reward_threshold=spec.reward_threshold,
            kwargs=spec.kwargs,
            additional_wrappers=(HideCoordinates.wrapper_spec(hidden=tuple(hidden)),),
        )
