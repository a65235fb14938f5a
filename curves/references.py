"""What a policy without any knowledge reaches, the zero of normalized scores."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

# Mean return of 200 episodes of uniformly random actions; seeds 0 to 199, also of the actions.
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
    }
)
