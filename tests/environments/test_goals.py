"""What is found out of environments with goals, and what of them is refused."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from eagerly import RunError
from eagerly.environments.goals import Goals
from eagerly.spaces import Observations
from tests.toys import Reach, ScaledReach

BOX = spaces.Box(-10, 10, (2,), np.float64)


class SumsUp(Reach):
    """Of a batch it gives one number for all."""

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return -float(np.linalg.norm(achieved - desired))


class Mixes(Reach):
    """Of a batch it gives numbers for each, and wrong ones."""

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        far = np.linalg.norm(achieved - desired, axis=-1)
        return -far / np.max(far, initial=1e-9) if np.ndim(far) else -float(far > 0)


def goals_of(env: gymnasium.Env[Any, Any]) -> Goals:
    return Goals(env, "Reach", Observations(env.observation_space))


def asked(goals: Goals, count: int = 50) -> tuple[np.ndarray, np.ndarray, list[Any], Any]:
    random = np.random.default_rng(0)
    achieved, desired = random.uniform(-1, 1, (2, count, 2)).astype(np.float32)
    infos = [(2.0,) if goals.info_keys else None] * count
    return achieved, desired, infos, goals.outcomes(achieved, desired, infos)


def test_a_batch_gives_what_one_after_the_other_gives() -> None:
    env = Reach()
    goals = goals_of(env)
    assert (goals.info_keys, goals.achieved, goals.desired) == ((), slice(0, 2), slice(2, 4))
    assert goals._batches == [True, False]  # what terminates says one thing of a whole batch
    achieved, desired, _, (rewards, terminated) = asked(goals)
    pairs = list(zip(achieved.astype(np.float64), desired.astype(np.float64), strict=True))
    assert rewards.tolist() == [env.compute_reward(*pair, {}) for pair in pairs]
    assert terminated.tolist() == [env.compute_terminated(*pair, {}) for pair in pairs]
    assert 0 < terminated.sum() < len(pairs)


@pytest.mark.parametrize("kind", [SumsUp, Mixes, ScaledReach])
def test_what_is_wrong_of_a_batch_is_asked_for_one_by_one(kind: Any) -> None:
    env = kind()
    goals = goals_of(env)
    assert goals._batches == [False, False]
    achieved, desired, _, (rewards, _) = asked(goals)
    pairs = zip(achieved.astype(np.float64), desired.astype(np.float64), strict=True)
    assert rewards.tolist() == [env.compute_reward(*pair, {"scale": 2.0}) for pair in pairs]


def test_what_rewards_read_of_info_is_found_out() -> None:
    goals = goals_of(ScaledReach())
    assert goals.info_keys == ("scale",)
    near = goals.outcomes(np.zeros((2, 2)), np.ones((2, 2)), [(1.0,), (3.0,)])[0]
    np.testing.assert_allclose(near, [-(2**0.5), -3 * 2**0.5])


class Refused(Reach):
    """What `wrong` names is taken from it."""

    wrong = ""

    def __getattribute__(self, name: str) -> Any:
        if name != "wrong" and name == self.wrong:
            raise AttributeError(name)
        return super().__getattribute__(name)


def refused(**changes: Any) -> gymnasium.Env[Any, Any]:
    env = Refused()
    for name, value in changes.items():
        setattr(env, name, value)
    return env


def reads_an_object(achieved: Any, desired: Any, info: Any) -> float:
    return -1.0 if info["unread"] else 0.0


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (refused(wrong="compute_terminated"), r"needs a method compute_terminated\(achieved_goal"),
        (refused(observation_space=BOX), "without observation, achieved_goal, desired_goal"),
        (
            refused(
                observation_space=spaces.Dict(
                    {"observation": BOX, "achieved_goal": BOX, "desired_goal": spaces.Discrete(3)}
                )
            ),
            "goals that are arrays of one shape",
        ),
        (
            gymnasium.wrappers.TransformReward(Reach(), lambda r: r + 1),
            "reward was .* returned",
        ),
        (refused(compute_reward=reads_an_object), r"reads info\['unread'\], .* array; got object"),
    ],
)
def test_an_environment_without_what_hindsight_needs_is_refused(
    env: gymnasium.Env[Any, Any], message: str
) -> None:
    with pytest.raises(RunError, match=message):
        goals_of(env)


def test_what_fails_later_is_told() -> None:
    env = Reach()
    goals = goals_of(env)
    given = np.zeros((1, 2)), np.zeros((1, 2)), [None]
    goals._methods[0] = lambda *_: np.array([np.nan])
    with pytest.raises(RunError, match=r"compute_reward must return finite numbers; got \[nan\]"):
        goals.outcomes(*given)
    goals._methods[0] = lambda *_: {}["gone"]
    with pytest.raises(RunError, match="compute_reward failed, KeyError: 'gone'"):
        goals.outcomes(*given)
