"""Partially observable variants of Gymnasium environments, registered on import.

| id | base environment | observation |
|---|---|---|
| `PendulumPositions-v1` | `Pendulum-v1` | without the angular velocity |
| `PendulumFlickering-v1` | `Pendulum-v1` | all zeros at half of the steps on average |
| `CartPolePositions-v1` | `CartPole-v1` | without the two velocities |
| `PendulumPixels-v1` | `Pendulum-v1` | three grayscale frames of 64 by 64 pixels |
| `CartPolePixels-v1` | `CartPole-v1` | three grayscale frames of 64 by 64 pixels |
| `HalfCheetahPositions-v5` | `HalfCheetah-v5` | without velocities |
| `HopperPositions-v5` | `Hopper-v5` | without velocities |
| `Walker2dPositions-v5` | `Walker2d-v5` | without velocities |

This package never imports TensorFlow, which keeps environment processes lightweight.
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
