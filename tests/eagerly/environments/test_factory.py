"""Creating environments: ids, packages, factories, keyword arguments and checks."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
import pytest

from eagerly.environments.checking import check_environment
from eagerly.environments.factory import environment_maker, environment_name, recreate
from eagerly.environments.values import numeric_items
from eagerly.errors import RunError
from tests import toys
from tests.small_runs import logged

toys.register()


def make_counting(length: int = 5) -> gymnasium.Env:
    return toys.Counting(length=length)


class Callable:
    def __call__(self) -> gymnasium.Env:
        return toys.Counting()


def test_an_unknown_id_is_reported_with_similar_ids() -> None:
    with pytest.raises(RunError, match=r"environment 'HalfCheeta-v4'. Did you mean HalfCheetah-v5"):
        environment_maker("HalfCheeta-v4")
    with pytest.raises(RunError, match=r"Did you mean Hopper-v5\? Use"):
        environment_maker("Hoper-v3")


def test_a_missing_package_is_named() -> None:
    with pytest.raises(RunError, match=r"needs a package that is missing.*robot_arm"):
        environment_maker("NeedsPackage-v0")()


def test_a_package_is_imported_or_reported_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_arms.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('MyArm-v3', entry_point='tests.toys:Counting', kwargs={'length': 4})\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert environment_maker("my_arms:MyArm-v3", {"terminates": False})().unwrapped.length == 4
    with pytest.raises(RunError, match="Did you mean my_arms:MyArm-v3"):
        environment_maker("my_arms:MyArms-v3")
    with pytest.raises(RunError, match="needs the package 'my_legs', which cannot be imported"):
        environment_maker("my_legs:MyLeg-v0")
    (tmp_path / "my_hands.py").write_text("import my_fingers\n")
    with pytest.raises(RunError, match=r"No module named 'my_fingers' \(.*my_hands.py:1\)$"):
        environment_maker("my_hands:MyHand-v0")
    with pytest.raises(RunError, match=r"needs the package '.my_arms', which cannot be imported"):
        environment_maker(".my_arms:MyArm-v3")


@pytest.mark.parametrize("package", ["runs.evil.payload", "evil.payload", "payload"])
def test_nothing_is_imported_from_a_run_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    run = tmp_path / "runs" / "evil"
    run.mkdir(parents=True)
    (run / "__init__.py").write_text("print('ran')\n")
    (run / "payload.py").write_text("raise SystemExit('ran')\n")
    for place in (tmp_path, tmp_path / "runs", run):
        monkeypatch.syspath_prepend(place)
    with pytest.raises(RunError, match="it is inside the run directory"):
        environment_maker(f"{package}:X-v0", run_dir=run)
    assert not [name for name in sys.modules if name.startswith(("runs", "evil", "payload"))]


def test_packages_around_a_run_directory_are_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    robot = tmp_path / "robot_with_runs"
    (robot / "runs" / "x").mkdir(parents=True)
    (robot / "__init__.py").write_text("")
    (robot / "arms.py").write_text("class Arm: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        RunError, match=r"unknown environment .*imported, but registered no such id"
    ):
        environment_maker("robot_with_runs.arms:Arm-v0", run_dir=robot / "runs" / "x")
    with pytest.raises(RunError, match=r"Arm is a class: .*gymnasium.register\('Arm-v0', Arm\)"):
        environment_maker("robot_with_runs.arms:Arm")
    with pytest.raises(RunError, match=r"Omit .py"):
        environment_maker("robot_with_runs.py:Arm-v0")
    (robot / "runs" / "x" / "arms.py").write_text("raise SystemExit('ran')\n")
    with pytest.raises(RunError, match="it is inside the run directory"):
        environment_maker("robot_with_runs.runs.x.arms:Arm-v0", run_dir=robot / "runs" / "x")


def test_an_id_without_a_version_is_not_completed() -> None:
    with pytest.raises(RunError, match=r"unknown environment 'Pendulum'. Did you mean Pendulum-v1"):
        environment_maker("Pendulum")
    with pytest.raises(RunError, match=r"unknown environment 'Xyzzy'. Use package:id if"):
        environment_maker("Xyzzy")


def test_keyword_arguments_reach_the_environment_and_unknown_ones_are_reported() -> None:
    env = environment_maker("Long-v0", {"length": 7})()
    assert env.unwrapped.length == 7
    assert environment_maker("Long-v0")().unwrapped.length == 40
    with pytest.raises(RunError, match=r"'Long-v0' cannot be created with \{'wings': 2\}.*wings"):
        environment_maker("Long-v0", {"wings": 2})()


class NoDevice(toys.Counting):
    def __init__(self) -> None:
        raise OSError("no such device /dev/ttyUSB0")


def test_an_error_in_a_constructor_is_reported() -> None:
    told = (
        r"cannot be created: OSError: no such device /dev/ttyUSB0 \(.*/test_factory.py:\d+, in __in"
    )
    with pytest.raises(RunError, match=told):
        environment_maker(NoDevice)()


def test_a_factory_creates_environments() -> None:
    make = environment_maker(make_counting, {"length": 2})
    assert make.name == "factory tests.eagerly.environments.test_factory:make_counting"
    assert make().unwrapped.length == 2
    with pytest.raises(RunError, match=r"must return a gymnasium.Env; got .*'int'"):
        environment_maker(lambda: 3)()
    with pytest.raises(RunError, match=r"cannot be created with .*'wings'"):
        environment_maker(make_counting, {"wings": 2})()


def test_a_factory_receives_the_index_and_the_purpose_that_it_declares() -> None:
    def both(index: int, *, is_evaluation: bool, length: int = 3) -> gymnasium.Env:
        return toys.Counting(length + 10 * index + 100 * is_evaluation)

    def index_only(index: int) -> gymnasium.Env:
        return toys.Counting(index)

    def neither(**kwargs: Any) -> gymnasium.Env:
        assert not kwargs
        return toys.Counting()

    found = {
        environment_maker(both, is_evaluation=True)(2).unwrapped.length: 123,
        environment_maker(both, {"index": 5, "length": 1})(2).unwrapped.length: 51,
        environment_maker(index_only)().unwrapped.length: 0,
        environment_maker(neither, is_evaluation=True)(2).unwrapped.length: 3,
        environment_maker(toys.Counting, is_evaluation=True)(2).unwrapped.length: 3,
        environment_maker("Long-v0", is_evaluation=True)(2).unwrapped.length: 40,
    }
    assert list(found) == list(dict.fromkeys(found.values()))
    evaluation = cloudpickle.loads(cloudpickle.dumps(environment_maker(both, is_evaluation=True)))
    assert evaluation(1).unwrapped.length == 113


def test_an_environment_is_closed_only_once(tmp_path: Path) -> None:
    env = environment_maker(toys.Device, {"lock": str(tmp_path / "lock")})()
    env.close()
    env.close()  # closing the device again would fail


def test_an_environment_is_closed_before_it_is_recreated(tmp_path: Path) -> None:
    lock = {"lock": str(tmp_path / "lock")}
    env = gymnasium.wrappers.TimeLimit(environment_maker(toys.Device, lock)(), 9)
    recreate(env, {"length": 3})  # the device can be opened only once
    assert env.unwrapped.length == 3
    recreate(env, {})
    assert env.unwrapped.length == 40
    env.reset(seed=0)
    with pytest.raises(RunError, match=r"cannot be created with .*'speed': 1}: TypeError"):
        recreate(env, {"speed": 1})
    recreate(env, {"length": 4})
    assert env.unwrapped.length == 4
    env.close()
    environment_maker(toys.Device, lock)().close()
    with pytest.raises(TypeError, match="only environments of an EnvironmentMaker"):
        recreate(toys.Counting(), {})


def test_arguments_reach_an_environment_with_an_index() -> None:
    def made(index: int, length: int = 3) -> gymnasium.Env[Any, Any]:
        return toys.Counting(length=10 * index + length)

    env = environment_maker(made)(4)
    recreate(env, {"length": 5})
    assert env.unwrapped.length == 45
    recreate(env, {"index": 1})
    assert env.unwrapped.length == 13


def test_a_factory_must_not_reuse_an_open_environment() -> None:
    one = toys.Counting()
    make = environment_maker(lambda: gymnasium.wrappers.TimeLimit(one, 3))
    env = make()
    again = r"'factory .*lambda.*': the factory reuses an environment that is still open"
    with pytest.raises(RunError, match=again + ": create a new one in every call"):
        make()
    with pytest.raises(RunError, match=again):  # pickling would copy the open environment
        cloudpickle.dumps(make)
    env.close()
    cloudpickle.loads(cloudpickle.dumps(make))().close()
    make()  # this environment is garbage-collected without being closed
    make().close()


@pytest.mark.parametrize("error", [SystemExit("no license"), toys.PanicError("no license")])
def test_a_constructor_that_exits_is_reported(error: BaseException) -> None:
    def make() -> gymnasium.Env:
        raise error

    with pytest.raises(RunError, match=r"cannot be created: (SystemExit|PanicError): no license"):
        environment_maker(make)()


def test_an_environment_without_spaces_is_reported() -> None:
    with pytest.raises(RunError, match=r"cannot be created: .* no attribute 'observation_space'"):
        environment_maker(gymnasium.Env)()


def test_a_factory_is_saved_by_name_and_never_imported_by_name() -> None:
    assert environment_name(functools.partial(make_counting)).endswith("factory:make_counting")
    for bound in (functools.partial(make_counting, 3), functools.partial(make_counting, length=3)):
        with pytest.raises(RunError, match="pass environment arguments as env_kwargs"):
            environment_name(functools.partial(bound))
    assert environment_name(functools.partial(Callable())).endswith("factory:Callable")
    assert environment_name("Long-v0") == "Long-v0"
    for name in (environment_name(make_counting), "factory os:abort"):
        with pytest.raises(RunError, match="pass the factory again from your program"):
            environment_maker(name)


# --- the check --------------------------------------------------------------------------------


class WrongDtype(toys.Counting):
    def _observation(self) -> np.ndarray:
        return super()._observation().astype(np.complex128)


class OldStep(toys.Counting):
    def step(self, action: np.ndarray) -> Any:
        return super().step(action)[:4]


class ArrayReward(toys.Counting):
    def step(self, action: np.ndarray) -> Any:
        observation, _, *rest = super().step(action)
        return observation, np.ones(2), *rest


class Failing(toys.Counting):
    def step(self, action: np.ndarray) -> Any:
        raise KeyError("speed")


class NanAfterAStep(toys.Counting):
    def _observation(self) -> np.ndarray:
        return super()._observation() * (1.0 if self.count < 2 else np.nan)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (WrongDtype, r"not within the observation space.*skip the check with --no-check-env\.$"),
        (Failing, r"KeyError: 'speed' \(.*/test_factory.py:\d+, in step\)\. Fix it\.$"),
        (toys.NanReset, "not within the observation space"),
        (OldStep, "info"),
        (
            lambda: gymnasium.wrappers.TransformReward(OldStep(), float),
            "step must return .*truncated and info",
        ),
    ],
)
def test_an_environment_that_violates_gymnasiums_interface_is_rejected(
    kind: Any, message: str
) -> None:
    with pytest.raises(RunError, match=rf"(?s)'toy' fails Gymnasium's checker: .*{message}"):
        check_environment(kind(), "toy")


def test_an_observation_that_is_not_finite_is_located() -> None:
    told = r"'toy', step 2 of an episode: observation must be finite .*; got nan at index 0$"
    with pytest.raises(RunError, match=told):
        check_environment(NanAfterAStep(), "toy")


def test_a_non_numeric_reward_is_rejected() -> None:
    with pytest.raises(RunError, match=r"reward must be a number; got .* of shape \(2,\)"):
        check_environment(ArrayReward(), "toy")


@pytest.mark.parametrize(
    "env", ["HalfCheetah-v5", "Pendulum-v1", "Terminating-v0", "Bandit-v0", "Regulator-v0"]
)
def test_a_valid_environment_causes_no_warnings(env: str) -> None:
    with logged() as lines:
        check_environment(environment_maker(env)(), env)
    assert lines == []


def test_numbers_and_booleans_are_extracted_from_info() -> None:
    info = {
        "is_success": np.True_,
        "distance": np.float32(0.5),
        "count": 3,
        "bad": np.nan,
        "name": "arm",
        "position": np.zeros(3),
        "more": {"x": 1},
        "nothing": None,
    }
    assert numeric_items(info) == {"is_success": 1.0, "distance": 0.5, "count": 3.0}
