"""Times replay options: their updates, their environment steps, or hindsight goals.

Run as `python -m eagerly.benchmarks.contenders.replay_loops updates SETTINGS`, `... steps SETTINGS`
or `... goals`: prints one line of JSON. SETTINGS is one JSON object of TD3 settings, such as
'{"n_step": 3}'.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from eagerly.benchmarks.workload import cheetah_agent, random_transitions
from eagerly.buffers import Hindsight, OneStep

ROWS, PER_CALL, CALLS = 1_000_000, 50, 20
STEPS = 20_000
EPISODE, GOAL, GOALS = 50, 3, 4  # steps per episode, goal size, goals per step
BATCH = 256
_PART = 10_000  # rows added at once


class Timed:
    """Accumulates the time spent in the methods `names` of the object `inside`."""

    def __init__(self, inside: Any, names: tuple[str, ...]) -> None:
        self.seconds = 0.0
        for name in names:
            setattr(inside, name, self._timed(getattr(inside, name)))

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            began = time.perf_counter()
            result = call(*args)
            self.seconds += time.perf_counter() - began
            return result

        return timed


def time_updates(settings: dict[str, Any]) -> dict[str, float]:
    """Times updates from a full buffer, and the part of this time that the sampler takes."""
    agent, random = cheetah_agent("td3", **settings), np.random.default_rng(0)
    buffer = agent.replay_buffer(ROWS)
    for _ in range(ROWS // _PART):
        buffer.add(random_transitions(_PART, random), np.zeros(_PART, bool))
    for _ in range(3):
        agent.train(buffer, PER_CALL)
    sampler = Timed(buffer.sampler, ("draw", "weights", "feedback"))
    began = time.perf_counter()
    for _ in range(CALLS):
        agent.train(buffer, PER_CALL)
    seconds, updates = time.perf_counter() - began, CALLS * PER_CALL
    return {
        "seconds_per_update": seconds / updates,
        "sampler_seconds_per_update": sampler.seconds / updates,
    }


def time_steps(settings: dict[str, Any]) -> dict[str, float]:
    """Times the work of accumulator, replay buffer and sampler for one environment step."""
    agent, random = cheetah_agent("td3", **settings), np.random.default_rng(0)
    buffer, accumulator = agent.replay_buffer(ROWS), agent.accumulator()
    steps = [random_transitions(1, random) for _ in range(100)]
    continues, ends = np.zeros(1, bool), np.ones(1, bool)
    began = time.perf_counter()
    for number in range(STEPS):
        ended = ends if number % 1000 == 999 else continues
        transitions, over = accumulator.accumulate(steps[number % 100], ended)
        if len(over):
            buffer.add(transitions, over)
    return {"seconds_per_step": (time.perf_counter() - began) / STEPS}


def outcomes(achieved: np.ndarray, desired: np.ndarray, infos: Any) -> Any:
    """Returns sparse rewards and success flags for a batch of goals, as in the Fetch tasks."""
    far = np.linalg.norm(achieved - desired, axis=-1) > 0.05
    return -far.astype(np.float64), ~far


def time_goals() -> dict[str, float]:
    """Times two ways to replace goals: at episode ends, as this package does, or during sampling.

    For the second way, only the computation of rewards is timed, per batch and one by one.
    """
    random = np.random.default_rng(0)
    hindsight = Hindsight(
        OneStep(),
        achieved=slice(0, GOAL),
        desired=slice(GOAL, 2 * GOAL),
        outcomes=outcomes,
        discount=0.99,
        goals=GOALS,
    )
    steps = [random_transitions(1, random) for _ in range(100)]
    began = time.perf_counter()
    for number in range(STEPS):
        hindsight.accumulate(steps[number % 100], np.array([number % EPISODE == EPISODE - 1]))
    at_ends = (time.perf_counter() - began) / STEPS
    # The number of transitions in a batch that would get new goals.
    rows = random_transitions(BATCH * GOALS // (1 + GOALS), random)
    infos = [None] * len(rows.reward)
    found = {"seconds_per_step_at_ends": at_ends}
    for name, call in (("together", outcomes), ("one_by_one", _one_by_one)):
        began = time.perf_counter()
        for _ in range(200):
            call(rows.observation[:, :GOAL], rows.next_observation[:, :GOAL], infos)
        found[f"seconds_per_update_when_sampled_{name}"] = (time.perf_counter() - began) / 200
    return found


def _one_by_one(achieved: np.ndarray, desired: np.ndarray, infos: Any) -> None:
    for each in zip(achieved, desired, infos, strict=True):
        outcomes(*each)


if __name__ == "__main__":
    what, *given = sys.argv[1:]
    if what == "goals":
        found = time_goals()
    else:
        found = (time_updates if what == "updates" else time_steps)(json.loads(given[0]))
    sys.stdout.write(json.dumps(found) + "\n")
