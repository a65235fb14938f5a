"""Code that adds a missing `compute_terminated` to an environment with goals."""

from __future__ import annotations

from typing import Any

import gymnasium

from eagerly.importing import FACTORY

# Maps packages to the methods that their environments need. Both end an episode at its goal.
# highway-env's parking also ends it at a collision, which costs a reward.
_BY_PACKAGE = {
    "panda_gym": """\
    def compute_terminated(self, achieved_goal, desired_goal, info):
        return self.unwrapped.task.is_success(achieved_goal, desired_goal)
""",
    "highway_env": """\
    def compute_reward(self, achieved_goal, desired_goal, info):
        reward = self.env.get_wrapper_attr("compute_reward")(achieved_goal, desired_goal, info)
        return reward + self.unwrapped.config["collision_reward"] * info["crashed"]
    def compute_terminated(self, achieved_goal, desired_goal, info):
        return info["crashed"] or self.unwrapped._is_success(achieved_goal, desired_goal)
""",
}
_OTHERS = """\
    def compute_terminated(self, achieved_goal, desired_goal, info):
        return False  # or when the environment terminates, such as at the goal
"""
_CODE = """\
import gymnasium

class WithTermination(gymnasium.Wrapper):
{methods}def make_env(**kwargs):
    return WithTermination({make})
"""


def termination_code(env: gymnasium.Env[Any, Any], name: str) -> str:
    """Returns the code of a wrapper that defines `compute_terminated`, and of its factory.

    Args:
        env: An environment without that method.
        name: The environment's id, or the saved name of its factory.
    """
    package = type(env.unwrapped).__module__.partition(".")[0]
    make = f"gymnasium.make({name!r}, **kwargs)"
    if name.startswith(FACTORY):
        factory = name.rpartition(":")[2]
        # `<lambda>` and `outer.<locals>.inner` are not expressions; `make_env` would call itself.
        if factory == "make_env" or not all(map(str.isidentifier, factory.split("."))):
            factory = "your_factory"
        make = f"{factory}(**kwargs)"
    return _CODE.format(methods=_BY_PACKAGE.get(package, _OTHERS), make=make)
