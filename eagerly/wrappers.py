"""Wrappers for the setting `wrapper`, such as `eagerly.wrappers:RateLimit(change=0.1)`.

See "Wrap environments" in the documentation, also for Gymnasium's wrappers.
"""

from eagerly.environments.actuators import DelayAction, PreviousActions, RateLimit, SmoothnessCost
from eagerly.environments.wrappers import (
    DropObservations,
    Flicker,
    HideCoordinates,
    Pictures,
    Resize,
)

__all__ = [
    "DelayAction",
    "DropObservations",
    "Flicker",
    "HideCoordinates",
    "Pictures",
    "PreviousActions",
    "RateLimit",
    "Resize",
    "SmoothnessCost",
]
