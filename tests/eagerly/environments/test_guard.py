"""The guard accepts valid results of an environment and reports invalid ones."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from eagerly.environments.guard import GuardedEnvironment, close_with_warning
from eagerly.environments.values import numeric_items
from eagerly.errors import RunError
from tests.toys import Counting, PanicError


class Answering(Counting):
    """Replaces parts of the result of a step."""

    def __init__(self, **parts: Any) -> None:
        super().__init__()
        self.parts = parts

    def step(self, action: np.ndarray) -> Any:
        names = ("observation", "reward", "terminated", "truncated", "info")
        answer = dict(zip(names, super().step(action), strict=True))
        return tuple((answer | self.parts).values())


class Unreadable:
    """A tensor that NumPy cannot read."""

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        raise RuntimeError("on another device")


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
        {"reward": np.array(1.0)},  # a scalar array, like a tensor of another library
        {"terminated": np.bool_(True)},
        {"truncated": np.array(False)},
        {"observation": [0, 1]},  # integers are cast to the floating-point space
        {"observation": np.zeros(2, np.float32)},
        {"info": {1: 2.0, "text": 10**400}},  # `info` is checked only at the end of an episode
        {"truncated": True, "info": {1: "not a number", "far": np.inf}},
    ],
)
def test_equivalent_types_are_accepted(parts: dict[str, Any]) -> None:
    assert len(stepped(**parts)) == 5


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"reward": "1"}, "reward must be a number; got '1'"),
        ({"reward": 1j}, r"reward must be a number; got 1j"),
        ({"terminated": 1}, "terminated must be True or False; got 1"),
        ({"truncated": np.array([False])}, r"got array\(\[False\]\) of shape \(1,\)"),
        ({"observation": np.zeros((1, 2))}, r"must have shape \(2,\); got \(1, 2\)"),
        ({"observation": np.zeros(2, complex)}, "must have dtype float64; got complex128"),
        ({"observation": [[1.0, 2.0], [3.0]]}, r"must have shape \(2,\); got \(1,\)"),
        ({"reward": [[1.0, 2.0], [3.0]]}, "reward must be a number; got"),
        ({"observation": None}, r"must have shape \(2,\); got \(\)"),
        ({"reward": 10**400}, "reward must fit into a float; got 1000"),
        # repr raises an error for a number of this size.
        ({"reward": 10**5000}, "reward must fit into a float; got <int>"),
        ({"reward": Unreadable()}, r"step failed:[\s\S]*RuntimeError: on another device"),
        ({"info": None}, "info must be a dictionary, such as {}; got None"),
        ({"truncated": True, "info": {"count": 10**400}}, r"info\['count'\] must fit into a float"),
        ({"truncated": True, "info": {"\ud800": 1}}, r"must be Unicode text; got '\\ud800'"),
    ],
)
def test_invalid_results_are_reported_with_the_step(parts: dict[str, Any], message: str) -> None:
    with pytest.raises(RunError, match="environment 0, step 1 of its episode: .*" + message):
        stepped(**parts)


class Raising(Counting):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def step(self, action: np.ndarray) -> Any:
        raise self.error


# A closed window raises SystemExit, and a panic in Rust code raises PanicError.
@pytest.mark.parametrize("error", [SystemExit(), PanicError()])
def test_base_exceptions_are_reported_with_the_step(error: BaseException) -> None:
    env = GuardedEnvironment(Raising(error), "environment 0")
    env.reset(seed=0)
    name = type(error).__name__
    with pytest.raises(RunError, match=rf"(?s)environment 0, step 1 .*: step failed:.*{name}"):
        env.step(np.zeros(2))


def test_ctrl_c_in_an_environment_is_not_reported_as_its_error() -> None:
    env = GuardedEnvironment(Raising(KeyboardInterrupt()), "environment 0")
    env.reset(seed=0)
    with pytest.raises(KeyboardInterrupt):
        env.step(np.zeros(2))


def test_an_environment_cannot_modify_the_action_of_the_caller() -> None:
    class Clearing(Counting):
        def step(self, action: np.ndarray) -> Any:
            action[:] = 0
            return super().step(action)

    env, action = GuardedEnvironment(Clearing(), "environment 0"), np.ones(2, np.float32)
    env.reset(seed=0)
    env.step(action)
    assert action.tolist() == [1.0, 1.0]


def test_an_error_in_close_only_causes_a_warning() -> None:
    class Sticking(Counting):
        def close(self) -> None:
            raise OSError("the door is stuck")

    for close in (
        lambda: GuardedEnvironment(Sticking(), "environment 0").close(),
        lambda: close_with_warning(Sticking(), "environment 0"),
    ):
        with pytest.warns(UserWarning, match=r"(?s)environment 0.*: close failed:.*door is stuck"):
            close()


def test_a_reset_without_info_is_rejected() -> None:
    class Old(Counting):
        def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
            return super().reset(seed=seed)[0]

    with pytest.raises(RunError, match=r"reset must return \(observation, info\); got array"):
        GuardedEnvironment(Old(), "environment 0").reset(seed=0)


def test_changed_spaces_are_reported_at_the_next_reset() -> None:
    env = Counting()
    guarded = GuardedEnvironment(env, "environment 0")
    guarded.reset(seed=0)
    env.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    with pytest.raises(RunError, match="spaces must stay"):
        guarded.reset(seed=1)


def test_keys_in_info_that_are_not_strings_become_text() -> None:
    assert numeric_items({1: 2.0, "a": True, (0, "x"): 3, "text": "y"}) == {
        "1": 2.0,
        "a": 1.0,
        "(0, 'x')": 3.0,
    }
