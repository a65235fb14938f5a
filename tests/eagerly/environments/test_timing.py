"""The rate and the age of actions, with a clock that the test sets."""

from __future__ import annotations

from typing import Any

import gymnasium
import pytest

from eagerly.environments.timing import ActionTiming, timed


class Clock:
    """A clock, in seconds, that moves only when the test or the environment moves it."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class Waiting(gymnasium.Env[float, float]):
    """A reset takes 60 s, and a step 0.1 s."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.clock.now += 60.0
        return 0.0, {}

    def step(self, action: float) -> Any:
        self.clock.now += 0.1
        return 0.0, 0.0, False, False, {}


def test_ages_end_with_the_action_and_intervals_exclude_resets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, timing = Clock(), ActionTiming()
    monkeypatch.setattr("eagerly.environments.timing.time.perf_counter", clock)
    env = timed(lambda index: Waiting(clock), timing, 0)
    assert timing.scalars() == {}
    for ages in ([0.5, 0.1], [0.1, 0.3]):  # two episodes
        env.reset()
        for age in ages:
            clock.now += age
            env.step(0.0)
    assert timing.scalars() == {
        "speed/action_age_mean_ms": pytest.approx(1000 * (0.5 + 0.1 + 0.1 + 0.3) / 4),
        "speed/action_age_max_ms": pytest.approx(500.0),
        "speed/actions_per_second": pytest.approx(2 / (0.2 + 0.4)),
        "speed/action_interval_max_ms": pytest.approx(400.0),
    }
    clock.now += 0.7
    env.step(0.0)
    assert str(timing) == (
        "2.1 per second (longest interval 800.0 ms); age 340.0 ms on average, at most 700.0 ms "
        "(action 5 of 5 in this session)"
    )
    assert timing.scalars() == {}


def test_the_summary_of_a_session_without_a_second_action_has_no_rate() -> None:
    timing = ActionTiming()
    assert str(timing) == "0 in this session"
    timing.record(0.1, None)
    assert str(timing) == "1 in this session"
