"""Environments that show less than there is to know; importing this registers them.

| id | what it is | what it hides |
|---|---|---|
| `PendulumPositions-v1` | `Pendulum-v1` | the angular velocity |
| `HalfCheetahPositions-v5` | `HalfCheetah-v5` | all velocities |
| `HopperPositions-v5` | `Hopper-v5` | all velocities |
| `Walker2dPositions-v5` | `Walker2d-v5` | all velocities |

This package never imports TensorFlow: what runs inside an environment's process stays light.
"""

from eagerly.environments.registration import register
from eagerly.environments.wrappers import DropObservations, Flicker, HideCoordinates

__all__ = ["DropObservations", "Flicker", "HideCoordinates", "register"]

register()
