"""What a policy without any knowledge reaches, the zero of normalized scores."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

# Mean return of 200 episodes of uniformly random actions, seeds 0 to 199.
RANDOM_RETURNS: Mapping[str, float] = MappingProxyType(
    {
    }
)
