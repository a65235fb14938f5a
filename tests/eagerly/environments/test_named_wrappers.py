"""Wrappers that a setting names: their form, order, errors and trust."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
import pytest

from eagerly import evaluate
from eagerly.environments.factory import environment_maker
from eagerly.environments.named_wrappers import WRAPPER_FORM
from eagerly.errors import RunError, UsageError
from eagerly.importing import split_call
from tests import toys

toys.register()
STACK = "gymnasium.wrappers:FrameStackObservation(stack_size=4)"
_CLOSED: list[str] = []


class Closing(toys.Counting):
    def close(self) -> None:
        _CLOSED.append("closed")


def failing(env: gymnasium.Env) -> gymnasium.Env:
    raise LookupError("no sensor")


def nothing(env: gymnasium.Env) -> None:
    return None


def test_arguments_are_literals() -> None:
    assert split_call(STACK, "", "") == (
        "gymnasium.wrappers",
        "FrameStackObservation",
        {"stack_size": 4},
    )
    text = "a.b:C.d(x=(1, -2.5), y={'k': [None, True]}, z='(,)')"
    found = {"x": (1, -2.5), "y": {"k": [None, True]}, "z": "(,)"}
    assert split_call(text, "", "") == ("a.b", "C.d", found)
    assert split_call("a:b", "", "") == split_call("a:b()", "", "") == ("a", "b", {})


@pytest.mark.parametrize(
    "text",
    [
        "a:b(4)",
        "a:b(x=y)",
        "a:b(x=open('f'))",
        "a:b(x=1, x=2)",
        "a:b(**{'x': 1})",
        "a:b(x=1)(y=2)",
        "a:b(x=1).c",
        "a:b(x=1",
        "a:b(" + "(" * 300,
        "a:b(x=" + "[" * 150 + "]" * 150 + ")(",
    ],
)
def test_other_arguments_are_rejected_without_executing_them(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"wrapper must be .*; got .*: write each argument as name"
    ):
        split_call(text, "wrapper", WRAPPER_FORM)


def test_the_first_wrapper_is_the_innermost() -> None:
    names = [
        "eagerly.wrappers:PreviousActions()",
        STACK,
        gymnasium.wrappers.FlattenObservation,
    ]
    make = environment_maker("Pendulum-v1", wrappers=names)
    for env in (make(), cloudpickle.loads(cloudpickle.dumps(make))()):
        assert env.observation_space.shape == (16,)
        assert env.reset(seed=0)[0].shape == (16,)
    assert [each.name for each in make.wrappers] == [
        *names[:2],
        "factory gymnasium.wrappers.transform_observation:FlattenObservation",
    ]


class Photo(toys.Counting):
    """Observes an RGB image of noise."""

    observation_space = gymnasium.spaces.Box(0, 255, (9, 8, 3), np.uint8)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def _observation(self) -> np.ndarray:
        return self.np_random.integers(0, 256, (9, 8, 3), np.uint8)


def test_an_episode_depends_only_on_its_seed_and_actions() -> None:
    make = environment_maker(
        Photo,
        {"length": 30},
        wrappers=[
            "eagerly.wrappers:Resize(height=6, width=5)",
            "gymnasium.wrappers:GrayscaleObservation",
            "gymnasium.wrappers:DelayObservation(delay=2)",
            "gymnasium.wrappers:FrameStackObservation(stack_size=3)",
            "eagerly.wrappers:RateLimit(change=0.1)",
            "eagerly.wrappers:DelayAction(delay=3)",
            "eagerly.wrappers:SmoothnessCost(weight=2)",
            "eagerly.wrappers:PreviousActions(count=2)",
        ],
    )
    used, fresh = make(), make()
    shapes = {name: space.shape for name, space in fresh.observation_space.items()}
    assert shapes == {"observation": (3, 6, 5), "previous_actions": (4,)}
    actions = np.random.default_rng(0).uniform(-1, 1, (20, 2)).astype(np.float32)
    used.reset(seed=1)
    for action in actions[::-1]:
        used.step(action)
    np.testing.assert_equal(used.reset(seed=2), fresh.reset(seed=2))
    for action in actions:
        np.testing.assert_equal(used.step(action), fresh.step(action))


@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        ("gymnasium.wrappers:FrameStackObservations", r"Did you mean FrameStackObservation\?$"),
        ("eagerly.wrappers:RateLimits(change=1)", r"Did you mean RateLimit\?$"),
        ("eagerly.wrappers:RateLimit(chnge=1)", r"argument: 'change'\. Did you mean change\?$"),
        ("eagerly.wrappers:RateLimit(change=1, x=2)", "unexpected keyword argument 'x'.$"),
        ("eagerly.wrappers:__all__", "must be a class or function; got <class 'list'>"),
        ("nowhere.to_be:found", "wrapper 'nowhere.to_be:found' cannot be imported: No module"),
        ("gymnasium.wraper:X", r"'gymnasium\.wraper'\. Did you mean gymnasium\.wrappers\?$"),
        ("my_wrappers:X", r"No module named 'my_wrappers'\. Install it, .* to PYTHONPATH$"),
        ("subprocess:Popen(args='x')", "is part of the standard library"),
        ("wrap", f"wrapper must be {WRAPPER_FORM}; got 'wrap'".replace("(", r"\(")[:60]),
        ("factory tests.toys:Wrap", "from the Python factory tests.toys:Wrap: pass all wrappers"),
        (functools.partial(failing, x=1), "a factory must not be a functools.partial"),
    ],
)
def test_an_unknown_wrapper_is_reported_before_an_environment_exists(
    wrapper: Any, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        environment_maker(Closing, wrappers=[wrapper])


@pytest.mark.parametrize("wrapper", [nothing, "eagerly.wrappers:PreviousActions"])
def test_a_single_wrapper_must_be_in_a_list(wrapper: Any) -> None:
    with pytest.raises(UsageError, match=r"wrapper must be a list of module:factory .*; got "):
        environment_maker(Closing, wrappers=wrapper)


@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        (failing, r"failing' cannot wrap the environment: LookupError: no sensor \(.*\.py:\d+, in"),
        (nothing, r"nothing' .*: it must return a gymnasium.Env; got <class 'NoneType'>"),
        ("eagerly.wrappers:Resize(height=2, width=2)", r"2\)' cannot wrap .* must be uint8 images"),
    ],
)
def test_a_failing_wrapper_is_named_and_the_environment_closed(wrapper: Any, message: str) -> None:
    _CLOSED.clear()
    make = environment_maker(Closing, wrappers=["eagerly.wrappers:PreviousActions", wrapper])
    with pytest.raises(RunError, match=f"Closing': wrapper '.*{message}"):
        make()
    assert _CLOSED == ["closed"]


def test_modules_are_found_in_the_working_directory_but_not_in_the_run_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_shapes.py").write_text(
        "import gymnasium\n"
        "def scaled(env, factor=1.0):\n"
        "    import my_sizes\n"  # at creation, modules are found as well
        "    return gymnasium.wrappers.TransformReward(env, lambda r: my_sizes.ONE * factor * r)\n"
    )
    (tmp_path / "my_sizes.py").write_text("ONE = 1\n")
    monkeypatch.chdir(tmp_path)
    name = "my_shapes:scaled(factor=3)"
    make = environment_maker("Terminating-v0", wrappers=[name], run_dir=tmp_path / "run")
    found = cloudpickle.loads(cloudpickle.dumps(make))
    assert found.wrappers[0].package == "my_shapes"
    env = found()
    env.reset(seed=0)
    assert env.step(env.action_space.sample())[1] == 3.0
    with pytest.raises(UsageError, match=r"my_shapes:scaled.* it is inside the run directory"):
        environment_maker("Terminating-v0", wrappers=[name], run_dir=tmp_path)


def test_policies_are_evaluated_in_wrapped_environments() -> None:
    wrapper = ["eagerly.wrappers:SmoothnessCost(weight=16.0)"]
    found = evaluate(lambda _: [1.0, 0.0], "Terminating-v0", 2, wrapper=wrapper)
    assert found.returns.tolist() == [1.0, 1.0]  # 3 steps; the first costs 16 * mean(1 / 4, 0)
    assert found.info_means() == {"smoothness_cost": 2.0}
    with pytest.raises(ValueError, match="wrapper requires an id or a factory as env"):
        evaluate(lambda _: [1.0, 0.0], toys.Counting(), wrapper=wrapper)
    with pytest.raises(UsageError, match=r"a list of module:factory .* or callables; got 'a:b'"):
        evaluate(lambda _: [1.0, 0.0], toys.Counting, wrapper="a:b")
