"""Wrappers that act on actions: delays, rate limits, a cost of changes, and previous actions."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from eagerly.wrappers import DelayAction, PreviousActions, RateLimit, SmoothnessCost
from tests import toys

toys.register()


class Echo(gymnasium.Env):
    """Observes the step, receives rewards of 1 and records the executed actions."""

    observation_space = gymnasium.spaces.Box(0.0, 100.0, (1,), np.float64)

    def __init__(
        self, low: float = -1.0, high: float = 1.0, size: int = 1, *, reports: bool = True
    ) -> None:
        self.action_space = gymnasium.spaces.Box(low, high, (size,), np.float32)
        self._reports = reports

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        self.executed: list[list[float]] = []
        return np.zeros(1), {}

    def step(self, action: np.ndarray) -> Any:
        assert self.action_space.contains(action), action
        self.executed.append(action.tolist())
        info = {"executed_action": action.copy()} if self._reports else {}
        action[:] = np.nan  # an environment may modify its action
        return np.array([float(len(self.executed))]), 1.0, False, False, info | {"load": 0.5}


def played(env: gymnasium.Env, *actions: Any) -> list[Any]:
    env.reset(seed=0)
    return [env.step(np.array(action, np.float32)) for action in actions]


def test_actions_are_delayed_and_the_actuators_begin_at_rest() -> None:
    env = DelayAction(Echo(0.5, 1.0), delay=2)
    for _ in range(2):  # nothing remains of the previous episode
        results = played(env, [0.6], [0.7], [0.8], [0.9])
        executed = env.unwrapped.executed  # type: ignore[attr-defined]
        np.testing.assert_allclose(executed, [[0.5], [0.5], [0.6], [0.7]])
        assert results[-1][-1] == {"load": 0.5}  # without the action of another step


def test_the_change_of_actions_is_limited_per_component() -> None:
    env = RateLimit(Echo(size=2), change=(0.25, 0.5))
    for _ in range(2):
        played(env, [1.0, 1.0], [1.0, 0.75], [0.0, -1.0], [0.25, 0.25])
        assert env.unwrapped.executed == [  # type: ignore[attr-defined]
            [0.25, 0.5],
            [0.5, 0.75],
            [0.25, 0.25],
            [0.25, 0.25],
        ]
    played(RateLimit(Echo(), 0.1), *np.random.default_rng(0).uniform(-1, 1, (200, 1)))  # in bounds


def test_changes_cost_reward_relative_to_the_span() -> None:
    results = played(SmoothnessCost(Echo(-1.0, 3.0, 2), weight=8.0), [2.0, 0.0], [2.0, 2.0], [2, 2])
    # 8 * mean((2 / 4)^2, 0) = 1 in the first two steps
    assert [result[1] for result in results] == [0.0, 0.0, 1.0]
    assert [result[-1]["smoothness_cost"] for result in results] == [1.0, 2.0, 2.0]
    assert results[-1][-1]["load"] == 0.5


class Brake(gymnasium.ActionWrapper):
    """A safety layer that executes no action above 0.25."""

    def action(self, action: np.ndarray) -> np.ndarray:
        return np.minimum(action, np.float32(0.25))


def test_the_action_of_a_safety_layer_is_the_previous_one() -> None:
    env = RateLimit(Brake(Echo()), change=0.5)
    played(env, [1.0], [1.0], [-1.0])
    executed = env.unwrapped.executed  # type: ignore[attr-defined]
    assert executed == [[0.25], [0.25], [-0.25]]  # without the safety layer, it would be 0.5
    seen = played(PreviousActions(Brake(Echo()), count=2), [1.0], [-1.0])[-1][0]
    assert seen.tolist() == [2.0, 0.25, -1.0]
    results = played(SmoothnessCost(Brake(Echo()), weight=16.0), [1.0], [1.0])
    assert [result[1] for result in results] == [0.75, 1.0]  # 16 (0.25 / 2)^2 = 0.25, then 0


def test_previous_actions_are_appended_to_a_vector() -> None:
    env = PreviousActions(Echo(-2.0, 3.0), count=2)
    assert env.observation_space == gymnasium.spaces.Box(
        np.array([0.0, -2.0, -2.0]), np.array([100.0, 3.0, 3.0]), dtype=np.float64
    )
    assert env.reset(seed=0)[0].tolist() == [0.0, 0.0, 0.0]
    seen = [result[0].tolist() for result in played(env, [1.5], [-1.0], [2.0])]
    assert seen == [[1.0, 0.0, 1.5], [2.0, 1.5, -1.0], [3.0, -1.0, 2.0]]


def test_previous_actions_are_an_entry_beside_others() -> None:
    env = PreviousActions(gymnasium.make("Camera-v0"))
    assert list(env.observation_space) == ["camera", "count", "previous_actions"]
    assert played(env, [0.5])[0][0]["previous_actions"] == 0.5
    discrete = PreviousActions(gymnasium.make("CartPole-v1"), count=2)  # one-hot
    discrete.reset(seed=0)
    assert discrete.step(np.int64(1))[0][-4:].tolist() == [0.0, 0.0, 0.0, 1.0]
    with pytest.raises(ValueError, match="already has an entry 'previous_actions'"):
        PreviousActions(env)


def test_the_order_determines_which_actions_are_observed() -> None:
    inside = RateLimit(PreviousActions(Echo(reports=False)), 0.25)
    outside = PreviousActions(RateLimit(Echo(reports=False), 0.25))
    assert [played(env, [1.0])[0][0][1] for env in (inside, outside)] == [0.25, 1.0]


@pytest.mark.filterwarnings("ignore:.*:UserWarning")  # about the wrappers themselves
@pytest.mark.parametrize(
    "wrap",
    [
        lambda env: DelayAction(env, 3),
        lambda env: RateLimit(env, 0.1),
        lambda env: SmoothnessCost(env, 0.5),
        lambda env: PreviousActions(env, 2),
    ],
)
def test_wrapped_environments_pass_gymnasiums_checker_and_record_their_arguments(wrap: Any) -> None:
    env = wrap(gymnasium.make("Pendulum-v1"))
    check_env(env, skip_render_check=True)
    again = gymnasium.make(env.spec)
    for each in (env, again):
        each.reset(seed=5)
    action = env.action_space.sample()
    np.testing.assert_equal(env.step(action), again.step(action))


@pytest.mark.parametrize(
    ("wrap", "message"),
    [
        (lambda: DelayAction(Echo(), 0), "delay must be an integer from 1 to 1000; got 0"),
        (lambda: DelayAction(Echo(), 1.0), r"delay must be an integer from 1 to 1000; got 1\.0"),  # type: ignore[arg-type]
        (lambda: DelayAction(gymnasium.make("CartPole-v1"), 1), r"a Box of float.*got Discrete"),
        (lambda: RateLimit(Echo(), 0.0), r"change must be .* above 0, .* \(1,\) .* got 0\.0"),
        (lambda: RateLimit(Echo(), "x"), "got 'x'"),  # type: ignore[arg-type]
        (lambda: RateLimit(Echo(), (1.0, 2.0)), r"one for each of the \(1,\) action components"),
        (lambda: SmoothnessCost(Echo(), -1.0), "weight must be a finite number above 0; got -1"),
        (lambda: SmoothnessCost(Echo(-np.inf), 1.0), "bounds of actions, which must be finite"),
        (lambda: PreviousActions(Echo(), 1001), "count must be an integer from 1 to 1000"),
    ],
)
def test_invalid_arguments_are_rejected(wrap: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wrap()
