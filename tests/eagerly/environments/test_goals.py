"""Goal-conditioned environments: batches of goals, the `info` keys that rewards read, errors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from eagerly import RunError
from eagerly.environments.factory import factory_name
from eagerly.environments.goal_termination import termination_code
from eagerly.environments.goals import Goals
from eagerly.spaces import Observations
from tests.toys import PanicError, Reach, ScaledReach

BOX = spaces.Box(-10, 10, (2,), np.float64)


class SumsUp(Reach):
    """Returns a single reward for a whole batch."""

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return -float(np.linalg.norm(achieved - desired))


class Mixes(Reach):
    """Returns other rewards for a batch than for its goals one by one."""

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


def test_a_batched_call_equals_individual_calls() -> None:
    env = Reach()
    goals = goals_of(env)
    assert (goals.info_keys, goals.achieved, goals.desired) == ((), slice(0, 2), slice(2, 4))
    assert goals._batches == [True, False]  # Reach.compute_terminated returns one value for a batch
    achieved, desired, _, (rewards, terminated) = asked(goals)
    pairs = list(zip(achieved.astype(np.float64), desired.astype(np.float64), strict=True))
    assert rewards.tolist() == [env.compute_reward(*pair, {}) for pair in pairs]
    assert terminated.tolist() == [env.compute_terminated(*pair, {}) for pair in pairs]
    assert 0 < terminated.sum() < len(pairs)


@pytest.mark.parametrize("kind", [SumsUp, Mixes, ScaledReach])
def test_methods_without_batch_support_are_called_once_per_pair(kind: Any) -> None:
    env = kind()
    goals = goals_of(env)
    assert goals._batches == [False, False]
    achieved, desired, _, (rewards, _) = asked(goals)
    pairs = zip(achieved.astype(np.float64), desired.astype(np.float64), strict=True)
    assert rewards.tolist() == [env.compute_reward(*pair, {"scale": 2.0}) for pair in pairs]


def test_info_keys_that_rewards_read_are_detected() -> None:
    goals = goals_of(ScaledReach())
    assert goals.info_keys == ("scale",)
    near = goals.outcomes(np.zeros((2, 2)), np.ones((2, 2)), [{"scale": 1.0}, {"scale": 3.0}])[0]
    np.testing.assert_allclose(near, [-(2**0.5), -3 * 2**0.5])


class Refused(Reach):
    """An environment without the attribute named by `wrong`."""

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
        (refused(wrong="compute_terminated"), r"requires a method compute_terminated\("),
        (refused(observation_space=BOX), r"are arrays; got Box\("),
        (
            refused(
                observation_space=spaces.Dict(
                    {"observation": BOX, "achieved_goal": BOX, "desired_goal": spaces.Discrete(3)}
                )
            ),
            "requires array goals of the same shape",
        ),
        (gymnasium.wrappers.TransformReward(Reach(), lambda r: r + 1), "reward was .* returned"),
        (
            refused(compute_reward=reads_an_object),
            r"reads info\['unread'\], .* array of numbers; got object",
        ),
    ],
)
def test_an_environment_without_the_goal_interface_is_rejected(
    env: gymnasium.Env[Any, Any], message: str
) -> None:
    with pytest.raises(RunError, match=message):
        goals_of(env)


class LikePanda(Reach):
    """Terminates at the goal but, like the environments of panda-gym, only defines `is_success`."""

    __module__ = "panda_gym.envs.core"

    @property
    def compute_terminated(self) -> Any:
        raise AttributeError

    @property
    def task(self) -> Any:
        return SimpleNamespace(is_success=lambda *goals: Reach.compute_terminated(self, *goals, {}))

    def step(self, action: Any) -> Any:
        self.place = self.place + action
        reward = self.compute_reward(self.place, self.goal, {})
        ended = self.task.is_success(self.place, self.goal)
        return self._seen(), reward, ended, False, self._info()


class LikeParking(LikePanda):
    """Also terminates outside the field, at a cost, like the parking task of highway-env."""

    __module__ = "highway_env.envs.parking_env"
    config = {"collision_reward": -5}  # noqa: RUF012

    def _is_success(self, achieved: Any, desired: Any) -> bool:
        return self.task.is_success(achieved, desired)

    def step(self, action: Any) -> Any:
        observation, reward, ended, _, info = super().step(action)
        crashed = bool(np.abs(self.place).max() > 1)
        return (
            observation,
            reward - 5 * crashed,
            ended or crashed,
            False,
            info | {"crashed": crashed},
        )


class NeverEnds(LikePanda):
    __module__ = "elsewhere"

    def step(self, action: Any) -> Any:
        observation, reward, _, _, info = super().step(action)
        return observation, reward, False, False, info


UNTERMINATED = LikePanda, LikeParking, NeverEnds
for unterminated in UNTERMINATED:
    gymnasium.register(f"{unterminated.__name__}-v0", entry_point=unterminated)


@pytest.mark.parametrize("kind", UNTERMINATED)
@pytest.mark.parametrize("by", ["id", "factory"])
def test_a_missing_termination_is_reported_with_code_that_adds_it(kind: Any, by: str) -> None:
    name = f"{kind.__name__}-v0" if by == "id" else f"factory tests:{kind.__name__}"
    env = kind()
    with pytest.raises(RunError, match=r"eagerly.train:\n\nimport gymnasium") as raised:
        Goals(env, name, Observations(env.observation_space))
    names = {kind.__name__: kind}
    exec(str(raised.value).partition("\n\n")[2], names)
    goals = goals_of(names["make_env"]())
    _, terminated = goals.outcomes(
        np.zeros((2, 2)), np.array([[0.0, 0.1], [1.0, 1.0]]), [{"crashed": False}] * 2
    )
    assert terminated.tolist() == [kind is not NeverEnds, False]


class DoublesRewards(gymnasium.Wrapper):
    """Doubles the rewards of `step` and of `compute_reward`."""

    def step(self, action: Any) -> Any:
        observation, reward, *rest = self.env.step(action)
        return observation, 2 * float(reward), *rest

    def compute_reward(self, *given: Any) -> Any:
        return 2 * self.env.get_wrapper_attr("compute_reward")(*given)


@pytest.mark.parametrize("kind", [LikePanda, NeverEnds])
def test_the_code_for_a_missing_termination_calls_the_rewards_of_wrappers(kind: Any) -> None:
    def wrapped() -> gymnasium.Env[Any, Any]:
        return DoublesRewards(kind())

    names = {"your_factory": wrapped}
    exec(termination_code(wrapped(), factory_name(wrapped)), names)
    goals = goals_of(names["make_env"]())
    rewards, _ = goals.outcomes(np.zeros((2, 2)), np.array([[0.0, 0.1], [2.0, 2.0]]), [None] * 2)
    assert rewards.tolist() == [0, -2]


@pytest.mark.parametrize(
    ("name", "called"),
    [
        ("factory maze:make_maze", "make_maze"),
        ("factory maze:Maze.easy", "Maze.easy"),
        ("factory maze:<lambda>", "your_factory"),
        ("factory maze:main.<locals>.make_maze", "your_factory"),
        ("factory maze:make_env", "your_factory"),
    ],
)
def test_the_code_for_a_missing_termination_calls_the_factory(name: str, called: str) -> None:
    code = termination_code(NeverEnds(), name)
    compile(code, "code", "exec")
    assert code.endswith(f"\n    return WithTermination({called}(**kwargs))\n")


def test_the_remaining_observation_may_be_nested() -> None:
    class Nested(Reach):
        observation_space: Any = spaces.Dict(
            {
                "observation": spaces.Dict({"place": BOX}),
                "achieved_goal": BOX,
                "desired_goal": BOX,
            }
        )

        def _seen(self) -> Any:
            seen: Any = super()._seen()
            return seen | {"observation": {"place": seen["observation"]}}

    assert goals_of(Nested()).desired == slice(2, 4)
    goals: Any = spaces.Dict({"a": BOX, "b": BOX})
    split = {"observation": BOX, "achieved_goal": goals, "desired_goal": goals}
    with pytest.raises(RunError, match=r"are arrays; got Dict\('achieved_goal': Dict\("):
        goals_of(refused(observation_space=spaces.Dict(split)))


def test_failures_after_the_check_are_reported() -> None:
    env = Reach()
    goals = goals_of(env)
    given = np.zeros((1, 2)), np.zeros((1, 2)), [None]
    goals._methods[0] = lambda *_: np.array([np.nan])
    with pytest.raises(RunError, match=r"compute_reward must return a finite number .*; got nan"):
        goals.outcomes(*given)
    goals._methods[0] = lambda *_: {}["gone"]
    with pytest.raises(RunError, match="compute_reward failed: KeyError: 'gone'"):
        goals.outcomes(*given)


class InPlace(Reach):
    """Its methods modify their arguments, including an array in `info`."""

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


def test_methods_that_modify_their_arguments_have_no_side_effects() -> None:
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
    with pytest.raises(RunError, match="compute_reward failed: PanicError: index"):
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
def test_one_element_arrays_and_booleans_are_valid_rewards(kind: Any) -> None:
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
def test_every_way_to_read_info_is_detected(reads: Any) -> None:
    env = Reach()

    def reward(achieved: Any, desired: Any, info: Any) -> float:
        return float(-reads(info) * np.linalg.norm(achieved - desired))

    env._info = lambda: {"scale": 2.0}  # type: ignore[method-assign]
    env.compute_reward = reward  # type: ignore[method-assign]
    assert "scale" in goals_of(env).info_keys


def test_info_keys_read_only_for_some_goals_are_detected() -> None:
    env = Reach()

    def reward(achieved: Any, desired: Any, info: Any) -> float:
        return float(info["scale"]) if (achieved == desired).all() else 0.0

    env.compute_reward = reward  # type: ignore[method-assign]
    assert goals_of(env).info_keys == ("scale",)


class Watched(Reach):
    """Counts invalid actions."""

    invalid = 0

    def step(self, action: Any) -> Any:
        self.invalid += not self._info()["action_mask"][action]
        return super().step(action)

    def reset(self, **given: Any) -> Any:
        super().reset(**given)
        self.place = np.array([10.0, 10.0])
        return self._seen(), self._info()


def test_the_check_plays_only_valid_actions() -> None:
    env = Watched(discrete=True)
    Goals(env, "Reach", Observations(env.observation_space, masked=4))
    assert env.invalid == 0


class Remembers(Reach):
    """Computes rewards for its current goal instead of the goal passed to `compute_reward`."""

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> float:
        return float(-np.linalg.norm(achieved - self.goal))


class GivesUp(Reach):
    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, not terminated, truncated, info


def apart(compute_reward: Any) -> gymnasium.Env[Any, Any]:
    """Returns an environment whose `step` does not call `compute_reward`."""

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
        (Remembers(), r"compute_reward returned .* for a step but .* after a reset"),
        (GivesUp(), r"step 1: the termination was 1, but compute_terminated\(.* returned 0"),
        (scaled(Reach()), "a wrapper changes achieved_goal to .* define compute_reward and"),
        (apart(lambda *_: None), r"compute_reward must return a finite number .*; got nan"),
        (apart(lambda *_: np.ones(2)), "compute_reward failed: cannot reshape array"),
        (apart(lambda *_: {}["gone"]), "compute_reward failed: KeyError: 'gone'"),
    ],
)
def test_methods_that_do_not_reproduce_the_step_are_rejected(
    env: gymnasium.Env[Any, Any], message: str
) -> None:
    with pytest.raises(RunError, match=message):
        goals_of(gymnasium.wrappers.OrderEnforcing(env))


def test_wrappers_are_unchanged_after_the_check() -> None:
    inside = gymnasium.wrappers.OrderEnforcing(Reach())
    env = gymnasium.wrappers.TimeLimit(inside, 5)
    goals_of(env)
    assert env.env is inside
