"""What a policy without any knowledge reaches, the zero of normalized scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import gymnasium
import numpy as np


def random_returns(env: str, seeds: Iterable[int]) -> np.ndarray:
    """Plays an episode of uniformly random actions for each seed, which the actions have too.

    Returns:
        The return of each.
    """
    made = gymnasium.make(env)
    returns = []
    for seed in seeds:
        made.reset(seed=seed)
        made.action_space.seed(seed)
        total, ended = 0.0, False
        while not ended:
            _, reward, terminated, truncated, _ = made.step(made.action_space.sample())
            total, ended = total + float(reward), terminated or truncated
        returns.append(total)
    made.close()
    return np.array(returns)


# Means of `random_returns` for the seeds 0 to 199. Hiding something changes nothing here.
RANDOM_RETURNS: Mapping[str, float] = MappingProxyType(
    {
        "HalfCheetah-v5": -278.17,
        "Hopper-v5": 17.50,
        "Walker2d-v5": 1.69,
        "Ant-v5": -55.38,
        "Humanoid-v5": 112.68,
        "Swimmer-v5": 2.61,
        "Reacher-v5": -42.94,
        "InvertedPendulum-v5": 5.50,
        "InvertedDoublePendulum-v5": 48.58,
        "Pendulum-v1": -1239.56,
        "HopperPositions-v5": 17.50,
        "PendulumPositions-v1": -1239.56,
        "PendulumFlickering-v1": -1239.56,
        "PendulumPixels-v1": -1239.56,
        "CartPole-v1": 24.09,
        "CartPolePositions-v1": 24.09,
        "Taxi-v4": -773.49,
    }
)
