"""Measures how often an environment receives actions, and how old they are."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gymnasium


class ActionTiming:
    """The rate and the age of the actions that an environment receives.

    The age of an action is the time from the return of the previous `step` or `reset`, which
    returned the observation, to the call of `step` with the action based on it. Intervals are
    the times between successive calls of `step` in an episode.

    One thread calls `record`, and any one thread the other methods.
    """

    def __init__(self) -> None:
        self._new: list[tuple[float, float | None]] = []  # ages and intervals since `scalars`
        self._actions = self._intervals = 0
        self._age = self._oldest = self._interval = self._slowest = 0.0  # sums and maxima
        self._oldest_action = 0

    def record(self, age: float, interval: float | None) -> None:
        """Adds an action.

        Args:
            age: Its age, in seconds.
            interval: Seconds since the previous action of the episode; None for the first one.
        """
        self._new.append((age, interval))

    def scalars(self) -> dict[str, float]:
        """Returns the curves of the actions since the previous call, empty without an action."""
        new = self._new[:]  # `record` may append meanwhile
        del self._new[: len(new)]
        if not new:
            return {}
        ages = [age for age, _ in new]
        intervals = [interval for _, interval in new if interval is not None]
        found = {"mean": sum(ages) / len(ages), "max": max(ages)}
        if found["max"] > self._oldest:
            self._oldest = found["max"]
            self._oldest_action = self._actions + ages.index(self._oldest) + 1
        self._actions += len(ages)
        self._age += sum(ages)
        curves = {f"speed/action_age_{name}_ms": 1000 * value for name, value in found.items()}
        if intervals:
            self._intervals += len(intervals)
            self._interval += sum(intervals)
            self._slowest = max(self._slowest, *intervals)
            curves["speed/actions_per_second"] = len(intervals) / sum(intervals)
            curves["speed/action_interval_max_ms"] = 1000 * max(intervals)
        return curves

    def __str__(self) -> str:
        """Returns a summary of all actions."""
        self.scalars()
        if not self._intervals:
            return f"{self._actions} in this session"
        return (
            f"{self._intervals / self._interval:.1f} per second (longest interval "
            f"{1000 * self._slowest:.1f} ms); age {1000 * self._age / self._actions:.1f} ms on "
            f"average, at most {1000 * self._oldest:.1f} ms (action {self._oldest_action} of "
            f"{self._actions} in this session)"
        )


class TimedEnvironment(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Measures the actions that an environment receives.

    Args:
        env: The environment.
        timing: Receives the measurements.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], timing: ActionTiming) -> None:
        super().__init__(env)
        self._timing = timing
        self._observed = time.perf_counter()
        self._acted: float | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Resets the environment."""
        result = self.env.reset(seed=seed, options=options)
        self._observed, self._acted = time.perf_counter(), None
        return result

    def step(self, action: Any) -> Any:
        """Steps the environment."""
        now = time.perf_counter()
        interval = None if self._acted is None else now - self._acted
        self._timing.record(now - self._observed, interval)
        self._acted = now
        result = self.env.step(action)
        self._observed = time.perf_counter()
        return result


def timed(
    make: Callable[[int], gymnasium.Env[Any, Any]], timing: ActionTiming, index: int
) -> TimedEnvironment:
    """Creates the environment with a given index, whose actions `timing` measures."""
    return TimedEnvironment(make(index), timing)
