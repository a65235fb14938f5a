"""Code that adds a missing `compute_terminated` to an environment with goals."""

from __future__ import annotations

from typing import Any

import gymnasium

from eagerly.importing import FACTORY

_REWARD = "self.unwrapped.compute_reward(achieved_goal, desired_goal, info)"
# Maps packages to the expressions of their environments for reward and termination. Both end an
# episode at its goal. highway-env's parking also ends it at a collision, which costs a reward.
_EXPRESSIONS = {
    "panda_gym": (_REWARD, "self.unwrapped.task.is_success(achieved_goal, desired_goal)"),
    "highway_env": (
        f'{_REWARD} + self.unwrapped.config["collision_reward"] * info["crashed"]',
        'info["crashed"] or self.unwrapped._is_success(achieved_goal, desired_goal)',
    ),
}
_OTHERS = (_REWARD, "False  # or when the environment terminates, such as at the goal")
_CODE = """\
import gymnasium

class WithTermination(gymnasium.Wrapper):
    def compute_reward(self, achieved_goal, desired_goal, info):
        return {reward}
    def compute_terminated(self, achieved_goal, desired_goal, info):
        return {terminated}
def make_env(**kwargs):
    return WithTermination({make})
"""


def termination_code(env: gymnasium.Env[Any, Any], name: str) -> str:
    """Returns the code of a wrapper that defines `compute_terminated`, and of its factory.

    Args:
        env: An environment without that method.
        name: The environment's id, or the saved name of its factory.
    """
    package = type(env.unwrapped).__module__.partition(".")[0]
    reward, terminated = _EXPRESSIONS.get(package, _OTHERS)
    make = f"gymnasium.make({name!r}, **kwargs)"
    if name.startswith(FACTORY):
        make = f"{name.rpartition(':')[2]}(**kwargs)"
    return _CODE.format(reward=reward, terminated=terminated, make=make)
