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
from tests.toys import PanicError, Reach, ScaledReach

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
    infos = [{"scale": 2.0} if goals.info_keys else None] * count
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
    near = goals.outcomes(np.zeros((2, 2)), np.ones((2, 2)), [{"scale": 1.0}, {"scale": 3.0}])[0]
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
        (gymnasium.wrappers.TransformReward(Reach(), lambda r: r + 1), "reward was .* returned"),
        (
            refused(compute_reward=reads_an_object),
            r"reads info\['unread'\], .* array of numbers; got object",
        ),
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
    with pytest.raises(RunError, match=r"compute_reward returned nan"):
        goals.outcomes(*given)
    goals._methods[0] = lambda *_: {}["gone"]
    with pytest.raises(RunError, match="compute_reward failed, KeyError: 'gone'"):
        goals.outcomes(*given)


class InPlace(Reach):
    """Its methods use their arguments as memory of their own, and `info` has an array."""

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> float:
        achieved -= desired
        info["factor"] *= np.linalg.norm(achieved)
        return -float(info["factor"][0])

    def compute_terminated(self, achieved: Any, desired: Any, info: Any) -> bool:
        achieved -= desired
        return bool(np.linalg.norm(achieved) < 0.5)

    def _info(self) -> dict[str, Any]:
        return super()._info() | {"factor": np.array([3.0])}

    def step(self, action: Any) -> Any:
        place = np.clip(self.place + action, -10, 10)
        reward = self.compute_reward(place.copy(), self.goal, self._info())
        over = self.compute_terminated(place.copy(), self.goal, {})
        self.place = place
        return self._seen(), reward, over, False, self._info()


def test_methods_that_change_their_arguments_in_place_change_nothing_here() -> None:
    goals = goals_of(InPlace())
    assert goals.info_keys == ("factor",)
    achieved, desired = np.array([[3.0, 4.0], [0.0, 0.25]]), np.zeros((2, 2))
    infos = [{"factor": np.array([2.0])}] * 2
    for _ in range(2):
        rewards, terminated = goals.outcomes(achieved, desired, infos)
        assert rewards.tolist() == [-10.0, -0.5]
        assert terminated.tolist() == [False, True]


def test_a_panic_in_a_method_is_reported() -> None:
    goals = goals_of(Reach())
    goals._methods[0] = raises_a_panic
    with pytest.raises(RunError, match="compute_reward failed, PanicError: index"):
        goals.outcomes(np.zeros((1, 2)), np.zeros((1, 2)), [None])


def raises_a_panic(*_: Any) -> Any:
    raise PanicError("index out of bounds")


class ColumnOfRewards(Reach):
    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return -np.linalg.norm(achieved - desired, axis=-1, keepdims=True)

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        return observation, float(reward[0]), *rest


class SaysYes(Reach):
    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> bool:
        return bool(np.linalg.norm(achieved - desired) < 1)


@pytest.mark.parametrize("kind", [ColumnOfRewards, SaysYes])
def test_arrays_of_one_number_and_truth_values_are_rewards(kind: Any) -> None:
    env = kind()
    achieved, desired, _, (rewards, _) = asked(goals_of(env))
    pairs = zip(achieved.astype(np.float64), desired.astype(np.float64), strict=True)
    assert rewards.tolist() == [float(np.squeeze(env.compute_reward(*p, {}))) for p in pairs]


READERS = {
    "in": lambda info: 1.0 + ("scale" in info),
    "get": lambda info: info.get("scale", 1.0) + info.get("bonus", 0.0),
    "pop": lambda info: info.copy().pop("scale"),
    "spread": lambda info: (lambda scale, **rest: scale)(**info),
    "items": lambda info: dict(info.items())["scale"],
    "dict": lambda info: dict(info)["scale"],
    "or": lambda info: (info | {})["scale"],
}


@pytest.mark.parametrize("reads", READERS.values(), ids=READERS)
def test_in_whatever_way_info_is_read_it_is_found_out(reads: Any) -> None:
    env = Reach()

    def reward(achieved: Any, desired: Any, info: Any) -> float:
        return float(-reads(info) * np.linalg.norm(achieved - desired))

    env._info = lambda: {"scale": 2.0}  # type: ignore[method-assign]
    env.compute_reward = reward  # type: ignore[method-assign]
    assert "scale" in goals_of(env).info_keys


def test_what_is_read_of_info_for_some_goals_alone_is_found_out() -> None:
    env = Reach()

    def reward(achieved: Any, desired: Any, info: Any) -> float:
        return float(info["scale"]) if (achieved == desired).all() else 0.0

    env.compute_reward = reward  # type: ignore[method-assign]
    assert goals_of(env).info_keys == ("scale",)


class Watched(Reach):
    """Counts actions that are not valid."""

    invalid = 0

    def step(self, action: Any) -> Any:
        self.invalid += not self._info()["action_mask"][action]
        return super().step(action)

    def reset(self, **given: Any) -> Any:
        super().reset(**given)
        self.place = np.array([10.0, 10.0])
        return self._seen(), self._info()


def test_of_masked_actions_valid_ones_are_tried() -> None:
    env = Watched(discrete=True)
    Goals(env, "Reach", Observations(env.observation_space, masked=4))
    assert env.invalid == 0


class Remembers(Reach):
    """Its rewards are for the goal that it has itself."""

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> float:
        return float(-np.linalg.norm(achieved - self.goal))


class GivesUp(Reach):
    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, not terminated, truncated, info


def apart(compute_reward: Any) -> gymnasium.Env[Any, Any]:
    """An environment whose steps do not ask its method."""

    class Apart(Reach):
        def step(self, action: Any) -> Any:
            self.place = self.place + action
            return self._seen(), 0.0, False, False, self._info()

        def compute_reward(self, *given: Any) -> Any:
            return compute_reward(*given)

    return Apart()


def scaled(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    def scale(observation: Any) -> Any:
        return observation | {k: observation[k] / 4 for k in ("achieved_goal", "desired_goal")}

    return gymnasium.wrappers.TransformObservation(env, scale, None)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (Remembers(), r"compute_reward returned .* for a step, and .* after a reset"),
        (GivesUp(), r"step 1: its termination was 1, but compute_terminated\(.* returned 0"),
        (scaled(Reach()), "a wrapper changes achieved_goal to .* methods of its own"),
        (apart(lambda *_: None), "compute_reward returned nan"),
        (apart(lambda *_: np.ones(2)), "compute_reward failed, ValueError"),
        (apart(lambda *_: {}["gone"]), "compute_reward failed, KeyError: 'gone'"),
    ],
)
def test_what_cannot_be_asked_for_other_goals_is_refused(
    env: gymnasium.Env[Any, Any], message: str
) -> None:
    with pytest.raises(RunError, match=message):
        goals_of(gymnasium.wrappers.OrderEnforcing(env))


def test_wrappers_that_leave_goals_alone_stay_where_they_are() -> None:
    inside = gymnasium.wrappers.OrderEnforcing(Reach())
    env = gymnasium.wrappers.TimeLimit(inside, 5)
    goals_of(env)
    assert env.env is inside
