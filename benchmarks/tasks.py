"""The environments tested by `suites.py`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Task:
    """An environment and the settings with which it is tested.

    Attributes:
        suite: Name of the suite.
        env: Value of `--env`.
        kwargs: Value of `--env-kwargs`.
        settings: Additional settings of the run.
        drawn: Whether the environment can render.
        note: Cause of a known failure.
    """

    suite: str
    env: str
    kwargs: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    drawn: bool = True
    note: str = ""

    @property
    def name(self) -> str:
        """The environment's id without package and namespace."""
        return self.env.rpartition(":")[2].rpartition("/")[2]


# With episodes of 70 steps, the run is interrupted within one, and a video takes only seconds.
SHORT = {"max_episode_steps": 70}
_MINIGRID = {"ignore_entries": "mission"}
_MAZE: dict[str, Any] = {"continuing_task": False, "reset_target": False}
_REUSED_WORLD = (
    "Gymnasium reuses the Box2D world of this environment in the next episode, so an episode "
    "depends on earlier ones and cannot be reproduced from its seed and actions"
)
_ODD = "eagerly.benchmarks.odd_environments"
TASKS = (
    Task("MuJoCo", "HalfCheetah-v5", SHORT),
    Task("MuJoCo", "Swimmer-v5", SHORT),
    Task("MuJoCo", "Pusher-v5", SHORT),
    Task("classic control", "Pendulum-v1", SHORT),
    Task("classic control", "MountainCarContinuous-v0", SHORT),
    Task("classic control", "CartPole-v1", SHORT),
    Task("Box2D", "LunarLanderContinuous-v3", SHORT),
    Task("Box2D", "BipedalWalker-v3", SHORT, note=_REUSED_WORLD),
    Task("Box2D", "CarRacing-v3", SHORT),
    Task("dm_control", "shimmy:dm_control/cheetah-run-v0", SHORT),
    Task("dm_control", "shimmy:dm_control/cartpole-swingup-v0", SHORT),
    Task("dm_control", "shimmy:dm_control/ball_in_cup-catch-v0", SHORT),
    Task("gymnasium-robotics", "gymnasium_robotics:FetchReach-v4", SHORT),
    Task("gymnasium-robotics", "gymnasium_robotics:PointMaze_UMaze-v3", SHORT | _MAZE),
    Task("gymnasium-robotics", "gymnasium_robotics:AdroitHandDoor-v1", SHORT),
    Task("MiniGrid", "minigrid:MiniGrid-Empty-5x5-v0", SHORT, _MINIGRID),
    Task("MiniGrid", "minigrid:MiniGrid-DoorKey-5x5-v0", SHORT, _MINIGRID),
    Task("own", f"{_ODD}:Bandit-v0", drawn=False),
    Task("own", f"{_ODD}:Uneven-v0", drawn=False),
    Task("own", f"{_ODD}:Nested-v0", drawn=False),
)
