"""What an environment may hand over, and how what it may not is told."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from eagerly.environments.guard import GuardedEnvironment
from eagerly.errors import RunError
from tests.toys import Counting


class Answering(Counting):
    """Answers a step as it is told."""

    def __init__(self, **parts: Any) -> None:
        super().__init__()
        self.parts = parts

    def step(self, action: np.ndarray) -> Any:
        names = ("observation", "reward", "terminated", "truncated", "info")
        answer = dict(zip(names, super().step(action), strict=True))
        return tuple((answer | self.parts).values())


def stepped(**parts: Any) -> Any:
    env = GuardedEnvironment(Answering(**parts), "environment 0")
    env.reset(seed=0)
    return env.step(np.zeros(2, np.float32))


@pytest.mark.parametrize(
    "parts",
    [
        {"reward": 1},
        {"reward": np.float32(1.0)},
        {"reward": np.bool_(True)},
        {"reward": np.array(1.0)},  # as other libraries' arrays without axes
        {"terminated": np.bool_(True)},
        {"truncated": np.array(False)},
        {"observation": [0, 1]},  # whole numbers where fractions are expected
        {"observation": np.zeros(2, np.float32)},
    ],
)
def test_what_means_the_same_is_taken(parts: dict[str, Any]) -> None:
    assert len(stepped(**parts)) == 5


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"reward": "1"}, "reward must be a number; got '1'"),
        ({"reward": 1j}, r"reward must be a number; got 1j"),
        ({"terminated": 1}, "terminated must be True or False; got 1"),
        ({"truncated": np.array([False])}, r"got array\(\[False\]\) of shape \(1,\)"),
        ({"observation": np.zeros((1, 2))}, r"must have shape \(2,\); got \(1, 2\)"),
        ({"observation": np.zeros(2, complex)}, "must be of dtype float64; got complex128"),
        ({"observation": [[1.0, 2.0], [3.0]]}, r"must have shape \(2,\); got \(1,\)"),
        ({"reward": [[1.0, 2.0], [3.0]]}, "reward must be a number; got"),
        ({"observation": None}, r"must have shape \(2,\); got \(\)"),
    ],
)
def test_what_does_not_is_told_with_the_step(parts: dict[str, Any], message: str) -> None:
    with pytest.raises(RunError, match="environment 0, step 1 of its episode: .*" + message):
        stepped(**parts)


def test_what_ends_a_program_in_an_environment_is_told_too() -> None:
    class Quitting(Counting):
        def step(self, action: np.ndarray) -> Any:
            raise SystemExit  # as when its window is closed

    env = GuardedEnvironment(Quitting(), "environment 0")
    env.reset(seed=0)
    with pytest.raises(RunError, match=r"(?s)environment 0, step 1 .*: step failed:.*SystemExit"):
        env.step(np.zeros(2))


def test_an_environment_that_cannot_be_closed_ends_nothing() -> None:
    class Sticking(Counting):
        def close(self) -> None:
            raise OSError("the door is stuck")

    with pytest.warns(UserWarning, match=r"(?s)environment 0, .*: close failed:.*door is stuck"):
        GuardedEnvironment(Sticking(), "environment 0").close()


def test_a_reset_that_returns_the_observation_alone_is_told() -> None:
    class Old(Counting):
        def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
            return super().reset(seed=seed)[0]

    with pytest.raises(RunError, match=r"reset must return \(observation, info\); got array"):
        GuardedEnvironment(Old(), "environment 0").reset(seed=0)


def test_spaces_that_change_are_told_at_the_next_reset() -> None:
    env = Counting()
    guarded = GuardedEnvironment(env, "environment 0")
    guarded.reset(seed=0)
    env.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    with pytest.raises(RunError, match="its spaces must stay"):
        guarded.reset(seed=1)
