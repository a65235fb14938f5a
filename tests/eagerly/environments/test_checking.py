"""Unusual environments are accepted or rejected, whether they are given by id or as a class."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import ClipAction, NormalizeObservation, NormalizeReward

from eagerly.environments.adapting import warn_if_unseeded
from eagerly.environments.checking import check_environment
from eagerly.environments.factory import environment_maker
from eagerly.errors import RunError
from eagerly.spaces import Observations
from eagerly.workers.environment_groups import Environments
from tests.small_runs import logged


class Walk(gymnasium.Env):
    """A point that moves by each action. An episode has three steps."""

    observation_space = gymnasium.spaces.Box(-9.0, 9.0, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    length = 3

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        return self.begin(self.np_random)

    def begin(self, draws: Any) -> tuple[Any, dict]:
        self.at, self.count = draws.uniform(-1, 1, 2), 0
        return self.seen(), {}

    def seen(self) -> Any:
        return self.at.astype(np.float32)

    def step(self, action: np.ndarray) -> Any:
        assert self.action_space.contains(action), action
        self.at, self.count = self.at + action, self.count + 1
        return self.seen(), -float(self.at @ self.at), False, self.count >= self.length, {}


class NoisyStep(Walk):
    def step(self, action: np.ndarray) -> Any:
        return super().step((action * np.random.default_rng().uniform()).astype(np.float32))


class NoisyLate(NoisyStep):
    """Adds unseeded noise to all steps but the first three of an episode."""

    length = 9

    def step(self, action: np.ndarray) -> Any:
        return (super(NoisyStep, self) if self.count < 3 else super()).step(action)


class Experienced(Walk):
    """Divides each initial position by the number of distinct initial positions so far."""

    had: set[bytes] | None = None

    def begin(self, draws: Any) -> tuple[Any, dict]:
        super().begin(draws)
        self.had = (self.had or set()) | {self.at.tobytes()}
        self.at = self.at / len(self.had)
        return self.seen(), {}


class OddThird(Walk):
    """Shifts the start of its third episode. In Box2D environments, too, early episodes differ."""

    resets = 0

    def begin(self, draws: Any) -> tuple[Any, dict]:
        super().begin(draws)
        self.resets += 1
        self.at += self.resets == 3
        return self.seen(), {}


class TruthValues(Walk):
    def step(self, action: np.ndarray) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, np.bool_(reward > -1), np.bool_(terminated), np.bool_(truncated), info


class OneStep(Walk):
    length = 1


class OwnGenerator(Walk):
    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        return self.begin(np.random.default_rng(seed))


class Unseeded(Walk):
    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        return self.begin(self.np_random)


class TakesNoSeed(Walk):
    def reset(self) -> tuple[Any, dict]:  # type: ignore[override]
        return self.begin(self.np_random)


class TakesNoSeedAndIgnoresIt(Walk):
    def reset(self) -> tuple[Any, dict]:  # type: ignore[override]
        return self.begin(np.random.default_rng())


class TakesNoOptions(Walk):
    def reset(self, seed: int | None = None) -> tuple[Any, dict]:  # type: ignore[override]
        return super().reset(seed=seed)


class Lists(Walk):
    def seen(self) -> Any:
        return self.at.astype(np.float32).tolist()


class OtherDtype(Walk):
    def seen(self) -> Any:
        return self.at


class OutOfBounds(Walk):
    observation_space = gymnasium.spaces.Box(np.array([-9, 2], np.float32), 3, dtype=np.float32)


class AtItsBound(Walk):
    """Observes exactly 0.9. In float32, both this number and the bound are less than 0.9."""

    observation_space = gymnasium.spaces.Box(-9, np.array([9, 0.9], np.float32), dtype=np.float32)

    def seen(self) -> Any:
        return np.array([self.at[0], 0.9])


class ReusesItsArray(Walk):
    array = np.zeros(2, np.float32)

    def seen(self) -> Any:
        self.array[:] = self.at
        return self.array


class Timestamp(Walk):
    """Observes a time near 1.7e9 s, where consecutive float32 numbers differ by 128 s."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)

    def seen(self) -> Any:
        return np.array([self.at[0], 1.7e9 + 0.05 * self.count])


class SeedRestarts(Walk):
    """Takes starts from a sequence, which each seed restarts."""

    starts = np.random.default_rng(0).uniform(-1, 1, (100, 2))

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.item = 0 if seed is not None else self.item + 1
        self.at = self.starts[self.item]
        return self.seen(), {}


class ReportsItsAction(Walk):
    """A discrete task. The name of an entry of its `info` is similar to that of a mask."""

    action_space: Any = gymnasium.spaces.Discrete(3)

    def step(self, action: Any) -> Any:
        *result, info = super().step(action)
        return *result, info | {"action": action}


class FewStarts(SeedRestarts):
    """Starts from one of two states. Seeds 0 and 1 select the same one."""

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.at = self.starts[0 if seed in (0, 1) else self.np_random.integers(2)]
        return self.seen(), {}


class NotANumber(Walk):
    def seen(self) -> Any:
        return np.array([0.0, np.nan], np.float32)


class IntegerEnds(Walk):
    def step(self, action: np.ndarray) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, int(terminated), truncated, info


def clipped() -> gymnasium.Env:
    return ClipAction(Walk())


def normalized_rewards() -> gymnasium.Env:
    return NormalizeReward(Walk())


def normalized_observations() -> gymnasium.Env:
    return NormalizeObservation(Walk())


DIFFERS = "is not reproducible from its seed"
UNSEEDED = r"reset does not call super\(\)\.reset\(seed=seed\)"
# Maps each environment to whether it is reproducible and to the expected warnings.
ODD: dict[Callable[[], gymnasium.Env], tuple[bool, list[str]]] = {
    NoisyStep: (False, [DIFFERS]),
    NoisyLate: (False, [DIFFERS]),
    Experienced: (False, [DIFFERS]),
    TruthValues: (True, []),
    OneStep: (True, []),
    OwnGenerator: (True, [UNSEEDED]),
    Unseeded: (False, [UNSEEDED, DIFFERS]),
    TakesNoSeed: (True, ["reset takes no seed"]),
    TakesNoSeedAndIgnoresIt: (False, ["reset takes no seed", DIFFERS]),
    TakesNoOptions: (True, []),
    OtherDtype: (True, ["had dtype float64, but its space has float32: it is cast"]),
    OutOfBounds: (
        True,
        [r"Box: index 1 is -0.\d+, outside \[2.0, 3.0\]. Training ignores"],
    ),
    AtItsBound: (True, ["had dtype float64, but its space has float32: it is cast"]),
    ReusesItsArray: (True, ["return the same object in observations"]),
    Timestamp: (
        True,
        [r"index 1 is 1700000000.15 and changes by at most 0.15 "],
    ),
    SeedRestarts: (True, ["reset returns the same observation for every seed"]),
    FewStarts: (True, []),
    Lists: (True, [r"`reset\(\)` .*numpy array", r"`step\(\)` .*numpy array"]),
    clipped: (True, []),
    normalized_rewards: (False, ["NormalizeReward.*not saved.*show scaled rewards"]),
    normalized_observations: (False, ["NormalizeObservation.*use --normalize-observations"]),
}
REFUSED: dict[Callable[[], gymnasium.Env], str] = {
    NotANumber: (
        r"\(expected Box\(-9.0, 9.0, \(2,\), float32\); got float32 of shape \(2,\), values from "
        r"nan to nan; index 1 is nan, outside \[-9.0, 9.0\]"
    ),
    IntegerEnds: r"step 1 of its episode: terminated must be True or False; got 0",
}
for make in (*ODD, *REFUSED):
    gymnasium.register(f"{make.__name__}-v0", entry_point=make)


def named(make: Callable[[], gymnasium.Env], given: str) -> Any:
    return f"{make.__name__}-v0" if given == "id" else make


@pytest.mark.parametrize("given", ["id", "class"])
@pytest.mark.parametrize("make", ODD)
def test_unusual_environments_are_accepted_with_warnings(
    make: Callable[[], gymnasium.Env], given: str
) -> None:
    repeats, warnings = ODD[make]
    maker = environment_maker(named(make, given))
    with logged() as lines:
        warn_if_unseeded(maker(), maker.name)
        assert check_environment(maker(), maker.name) is repeats
    assert len(lines) == len(warnings), lines
    for line, words in zip(lines, warnings, strict=True):
        assert line.startswith(f"environment {maker.name!r}")
        assert "\x1b" not in line
        assert re.search(words, line), line


@pytest.mark.parametrize("given", ["id", "class"])
@pytest.mark.parametrize("make", REFUSED)
def test_errors_describe_the_invalid_value(make: Callable[[], gymnasium.Env], given: str) -> None:
    maker = environment_maker(named(make, given))
    with pytest.raises(RunError, match=REFUSED[make]):
        check_environment(maker(), maker.name)


def test_episodes_are_compared_before_gymnasiums_checker_resets_the_environment() -> None:
    assert check_environment(OddThird(), "odd") is False


class Told(Walk):
    """Its observation is a tuple of an invalid sensor value (NaN) and the position."""

    observation_space = gymnasium.spaces.Tuple(  # type: ignore[assignment]
        [gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32), Walk.observation_space]
    )

    def seen(self) -> Any:
        return np.full(1, np.nan, np.float32), super().seen()


def test_an_entry_outside_its_space_is_named_unless_it_is_ignored() -> None:
    with pytest.raises(
        RunError,
        match=r"\(entry '0': expected Box\(-1.0, .*; got float32 of shape \(1,\), values from nan",
    ):
        check_environment(Told(), "told")
    observations = Observations(Told.observation_space, ignored=["0"])
    assert check_environment(Told(), "told", observations=observations)


class FarAway(Walk):
    observation_space: Any = gymnasium.spaces.Dict(
        position=gymnasium.spaces.Box(-np.inf, np.inf, (1, 2), np.float64)
    )

    def seen(self) -> Any:
        return {"position": self.at[np.newaxis] + [0.0, 1e8]}


def test_changes_that_float32_cannot_represent_are_located() -> None:
    with logged() as lines:
        assert check_environment(FarAway(), "far")
    (line,) = lines
    assert re.search(r"entry 'position' of the observation, index \(0, 1\) is \d+\.\d+", line)


def test_the_entry_action_of_info_is_not_taken_for_a_misspelled_mask() -> None:
    with logged() as lines:
        assert check_environment(ReportsItsAction(), "reports")
    assert lines == []


@pytest.mark.parametrize("given", ["id", "class"])
@pytest.mark.parametrize("make", ODD)
def test_unusual_environments_are_stepped_and_restored(
    make: Callable[[], gymnasium.Env], given: str
) -> None:
    repeats, _ = ODD[make]
    environments, again = (Environments(environment_maker(named(make, given)), 2, 7) for _ in "12")
    environments.start()
    actions = np.linspace(-1, 1, 20).reshape(5, 2, 2).astype(np.float32)
    rewards = np.array([environments.step(action).rewards for action in actions])
    assert rewards.dtype == np.float64
    assert again.repeats is None
    again.restore(environments.state())
    if make is OneStep:  # no step was replayed, so reproducibility remains unknown
        assert again.repeats is None
    else:
        assert again.repeats is repeats
    if repeats:
        np.testing.assert_array_equal(again.observations, environments.observations)
