"""Action bounds from clipping wrappers, and `reset` methods without `seed` or `options`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import ClipAction, RescaleAction, TimeLimit, TransformAction

from eagerly.environments.adapting import adapted
from eagerly.spaces import Actions
from tests.toys import Bandit, Counting, UnboundedActions

INFINITE = gymnasium.spaces.Box(-np.inf, np.inf, (2,))


class Reversed(gymnasium.ActionWrapper):
    def action(self, action: np.ndarray) -> np.ndarray:
        return -action


class NewSpaces(Counting):
    @property
    def action_space(self) -> Any:  # type: ignore[override]
        return gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)


def halved(env: gymnasium.Env) -> gymnasium.Env:
    return RescaleAction(env, np.float32(-0.5), np.float32(0.5))


@pytest.mark.parametrize(
    ("env", "low", "high"),
    [
        (ClipAction(Counting()), [-1, 0], [1, 4]),
        (TimeLimit(ClipAction(ClipAction(Counting())), 9), [-1, 0], [1, 4]),
        (ClipAction(halved(Bandit())), [-0.5, -0.5], [0.5, 0.5]),
        (halved(Bandit()), [-0.5, -0.5], [0.5, 0.5]),
    ],
)
def test_clipping_determines_the_action_bounds(
    env: gymnasium.Env, low: list[float], high: list[float]
) -> None:
    actions = Actions(adapted(env).action_space)
    np.testing.assert_array_equal(actions.low, low)
    np.testing.assert_array_equal(actions.high, high)


@pytest.mark.parametrize(
    "env",
    [
        ClipAction(UnboundedActions()),
        # The effect of `TransformAction` on an action before clipping is unknown.
        TransformAction(ClipAction(Bandit()), lambda action: action / 10, INFINITE),
        TimeLimit(Reversed(ClipAction(Bandit())), 9),
    ],
)
def test_unknown_bounds_are_not_guessed(env: gymnasium.Env) -> None:
    with pytest.raises(ValueError, match=r"got Box\(-inf, inf, .*TransformAction"):
        Actions(adapted(env).action_space)


def test_a_conforming_environment_is_not_wrapped() -> None:
    env = TimeLimit(Counting(), 9)
    assert adapted(env) is env
    assert isinstance(env.env, Counting)
    fresh = NewSpaces()
    assert adapted(fresh) is fresh


class NoSeed(Counting):
    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


class Everything(Counting):
    def reset(self, **kwargs: Any) -> Any:
        assert kwargs.keys() == {"seed", "options"}
        return super().reset(**kwargs)


class Forgetful(gymnasium.Wrapper):
    def reset(self) -> Any:  # type: ignore[override]
        return self.env.reset()


@pytest.mark.parametrize(
    "env", [NoSeed(), TimeLimit(NoSeed(), 9), Forgetful(Counting()), TimeLimit(Everything(), 9)]
)
def test_a_seed_reaches_np_random_even_if_reset_takes_no_seed(
    env: gymnasium.Env,
) -> None:
    expected, _ = Counting().reset(seed=3)
    taking = adapted(env)
    for _ in range(2):
        observation, _ = taking.reset(seed=3, options={})
        np.testing.assert_array_equal(observation, expected)
    other, _ = taking.reset()  # without a seed, the random sequence continues
    assert other[0] != expected[0]
