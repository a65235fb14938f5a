"""Measures the time budget of a training run: the time that each part of the loop takes.

Run as `python -m eagerly.benchmarks.contenders.budget ENV START STEPS`; see `measure`. Prints one
line of JSON. A timer adds a fraction of a microsecond to each call of the method that it wraps.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
_STARTED = time.time()

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from eagerly.benchmarks.contenders.ours import StopWatch, settings_for


class Clocks:
    """Accumulates the time spent in wrapped methods, excluding wrapped methods that they call."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._inside: list[float] = []
        self._wrapped: list[tuple[Any, str]] = []

    def wrap(self, owner: Any, method: str, name: str) -> None:
        """Replaces a method of `owner` with a wrapper that adds its time to `seconds[name]`."""
        self._wrapped.append((owner, method))
        setattr(owner, method, self.timed(getattr(owner, method), name))

    def take(self) -> dict[str, float]:
        """Returns and resets the accumulated seconds, and removes all wrappers."""
        for owner, method in self._wrapped:
            delattr(owner, method)
        self._wrapped.clear()
        found, self.seconds = dict(self.seconds), defaultdict(float)
        return found

    def timed(self, call: Callable[..., Any], name: str) -> Callable[..., Any]:
        """Returns a wrapper of `call` that adds its time to `seconds[name]`."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            self._inside.append(0.0)
            began = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                took = time.perf_counter() - began
                self.seconds[name] += took - self._inside.pop()
                if self._inside:
                    self._inside[-1] += took

        return timed


def measure(env: str, start: int, steps: int) -> dict[str, Any]:
    """Trains with one environment and default settings, and times the parts of the loop.

    After the first `start` steps, all parts are timed for `steps` steps. These timers add some
    microseconds per step, so the next `steps` steps are measured with only two timers: those of the
    environment and of the compiled call.

    Returns:
        `per_step` has the microseconds per environment step of each part. `with_clocks` is the
        total per step with all timers, and `whole` the total with two timers. `rest` is the part of
        `whole` that is spent outside the environment and the compiled call. `first_update` is the
        time in seconds from process start to the end of the first call of the train body, after
        1000 warm-up steps; `stages` breaks it down.
    """
    process_start = psutil.Process().create_time()
    stages = {"Python": _STARTED - process_start}
    import tensorflow  # noqa: F401

    stages["importing TensorFlow"] = time.time() - _STARTED
    mark = time.time()
    from eagerly import Trainer, open_run

    clocks, ends = Clocks(), (1000, start, start + steps, start + 2 * steps)
    marks: list[float] = []
    watch = StopWatch(list(ends))
    with tempfile.TemporaryDirectory() as folder:
        run = open_run(Path(folder) / "run", "td3", settings_for({"env": env}, ends[-1]))
        with Trainer(run, [watch]) as trainer:
            stages["importing the rest, building everything"] = time.time() - mark
            agent, mark = trainer.agent, time.time()
            environments: Any = trainer.collector.environments
            host = environments._collectors
            learner: Any = agent.learner
            (group,) = host._groups.values()
            two = (
                *((each, "step", "environment, with its wrappers") for each in group.envs),
                (learner, "_call", "compiled call"),
            )
            parts = (
                (group.policy, "act", "acting"),
                (trainer.buffer, "add", "adding"),
                (trainer.buffer, "draw", "sampling"),
                (agent.inputs, "transferred", "transfer"),
                (agent, "train", "metrics, finite checks"),
                (trainer.summaries, "on_rollout", "summaries"),
                (trainer.summaries, "on_update", "summaries"),
                (trainer.summaries, "on_round", "summaries"),
                (trainer, "checkpoint", "checkpoints"),
                (trainer, "_round", "the loop itself"),
            )
            compiled, found = learner._call, []
            reached = watch.on_round

            def on_round(training: Any) -> None:
                reached(training)
                done = training.steps
                if done not in ends:
                    return
                marks.append(time.perf_counter())
                if done != ends[0]:
                    found.append(clocks.take())
                    learner._call = compiled
                    for part in {start: two + parts, ends[2]: two}.get(done, ()):
                        clocks.wrap(*part)

            def first_call(*args: Any) -> Any:
                stages["1000 random steps"] = time.time() - mark
                began = time.time()
                result = compiled(*args)
                for values in result[0].values():
                    values.numpy()
                stages["first call: tracing, compiling, 50 updates"] = time.time() - began
                learner._call = compiled
                return result

            learner._call = first_call
            watch.on_round = on_round  # type: ignore[method-assign]
            trainer.train()
    _, began, middle, ended = marks
    _, per_step, last = ({k: 1e6 * v / steps for k, v in part.items()} for part in found)
    return {
        "per_step": per_step,
        "with_clocks": 1e6 * (middle - began) / steps,
        "whole": 1e6 * (ended - middle) / steps,
        "rest": 1e6 * (ended - middle) / steps - sum(last.values()),
        "first_update": sum(stages.values()),
        "stages": stages,
    }


def memory(capacity: int) -> dict[str, float]:
    """Returns the resident bytes of an empty and a full replay buffer, and the size of its rows."""
    import numpy as np

    from eagerly.benchmarks.workload import ACTION_SIZE, OBSERVATION_SIZE, random_transitions
    from eagerly.buffers import ReplayBuffer

    def resident() -> int:
        return psutil.Process().memory_info().rss

    chunk = 10_000
    part = random_transitions(chunk, np.random.default_rng(0))
    # Loads code that would otherwise be measured.
    ReplayBuffer(chunk, OBSERVATION_SIZE, ACTION_SIZE).add(part)
    before = resident()
    buffer = ReplayBuffer(capacity, OBSERVATION_SIZE, ACTION_SIZE)
    empty = resident() - before
    for _ in range(capacity // chunk):
        buffer.add(part)
    return {
        "rows": 4.0 * capacity * buffer.layout.width,
        "empty": float(empty),
        "full": float(resident() - before),
    }


if __name__ == "__main__":
    found = measure(sys.argv[1], *map(int, sys.argv[2:]))
    sys.stdout.write(json.dumps(found | {"memory": memory(1_000_000)}) + "\n")
