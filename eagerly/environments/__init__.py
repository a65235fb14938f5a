"""Environments that hide something, or show it otherwise; importing this registers them.

| id | what it is | what it hides |
|---|---|---|
| `PendulumPositions-v1` | `Pendulum-v1` | the angular velocity |
| `PendulumFlickering-v1` | `Pendulum-v1` | everything, at every second step on average |
| `CartPolePositions-v1` | `CartPole-v1` | both velocities |
| `PendulumPixels-v1` | `Pendulum-v1` | all but three grey pictures of 64 by 64 |
| `CartPolePixels-v1` | `CartPole-v1` | all but three grey pictures of 64 by 64 |
| `HalfCheetahPositions-v5` | `HalfCheetah-v5` | all velocities |
| `HopperPositions-v5` | `Hopper-v5` | all velocities |
| `Walker2dPositions-v5` | `Walker2d-v5` | all velocities |

This package never imports TensorFlow: what runs inside an environment's process stays light.
"""

from eagerly.environments.registration import register
from eagerly.environments.rendering import choose_renderer, report_mujoco_warnings
from eagerly.environments.wrappers import DropObservations, Flicker, HideCoordinates, Pictures

__all__ = [
    "DropObservations",
    "Flicker",
    "HideCoordinates",
    "Pictures",
    "choose_renderer",
    "register",
    "report_mujoco_warnings",
]

register()
