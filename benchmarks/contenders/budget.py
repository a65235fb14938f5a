"""Where the time of a training run goes, in this process.

Run as `python -m eagerly.benchmarks.contenders.budget ENV STEPS`: prints one line of JSON. The
parts of the loop are wrapped in clocks, which cost a fraction of a microsecond each.
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

START = 2000


class Clocks:
    """Adds up the time spent in methods, without that of wrapped methods inside them."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._inside: list[float] = []

    def wrap(self, owner: Any, method: str, name: str) -> None:
        """Replaces a method of an object by one that is timed under a name."""
        setattr(owner, method, self.timed(getattr(owner, method), name))

    def timed(self, call: Callable[..., Any], name: str) -> Callable[..., Any]:
        """Returns a function that is timed under a name."""

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


def measure(env: str, steps: int) -> dict[str, Any]:
    """Trains with one environment and default settings.

    Returns:
        `per_step`: microseconds per environment step of each part; `first_update`: seconds from
        the start of the process to the end of the first call of the train body, with a warm-up of
        1000 steps, and `stages`: what they consist of.
    """
    process_start = psutil.Process().create_time()
    stages = {"Python": _STARTED - process_start}
    import tensorflow  # noqa: F401

    stages["importing TensorFlow"] = time.time() - _STARTED
    mark = time.time()
    from eagerly import Trainer, open_run

    stages["importing the rest"] = time.time() - mark
    clocks, watch = Clocks(), StopWatch([1000, START, START + steps])
    with tempfile.TemporaryDirectory() as folder:
        mark = time.time()
        settings = settings_for({"env": env}, START + steps)
        run = open_run(Path(folder) / "run", "td3", settings)
        with Trainer(run, watch) as trainer:
            stages["building networks, environments, graph"] = time.time() - mark
            mark, first = time.time(), 0.0
            agent = trainer.agent
            train = agent.train

            def noted(*args: Any) -> Any:
                nonlocal first, mark
                if not first:
                    stages["1000 random steps"], mark = time.time() - mark, time.time()
                result = train(*args)
                if not first:
                    first = time.time()
                    stages["first call: tracing, compiling, 50 updates"] = first - mark
                return result

            agent.train = noted
            for owner, method, name in (
                (trainer.environments, "step", "environment, with its wrappers"),
                (agent, "act", "acting"),
                (trainer.bounds, "to_environment", "acting"),
                (trainer.buffer, "add", "adding"),
                (trainer.buffer, "sample_rows", "sampling"),
                (agent, "_transferred", "transfer"),
                (agent, "_compiled_train_body", "compiled call"),
                (agent, "train", "metrics, finite checks"),
                (trainer.summaries, "stepped", "summaries"),
                (trainer.summaries, "learned", "summaries"),
                (trainer.summaries, "write", "summaries"),
                (trainer, "checkpoint", "checkpoints"),
                (trainer, "_round", "the loop itself"),
            ):
                clocks.wrap(owner, method, name)
            reached = watch.stepped

            def reset_at_start(steps_done: int) -> None:
                reached(steps_done)
                if steps_done == START:
                    clocks.seconds.clear()

            watch.stepped = reset_at_start  # type: ignore[method-assign]
            trainer.train()
    (_, _), (_, began), (_, ended) = watch.times
    return {
        "per_step": {name: 1e6 * took / steps for name, took in clocks.seconds.items()},
        "whole": 1e6 * (ended - began) / steps,
        "first_update": first - process_start,
        "stages": stages,
    }


def memory(capacity: int, observation: int = 17, action: int = 6) -> dict[str, float]:
    """Returns the resident bytes that a replay buffer adds, empty and full, beside its rows."""
    import numpy as np

    from eagerly.buffers import ReplayBuffer, Transition

    def resident() -> int:
        return psutil.Process().memory_info().rss

    chunk = 10_000
    random = np.random.default_rng(0)
    part = Transition(
        random.normal(size=(chunk, observation)),
        random.normal(size=(chunk, action)),
        random.normal(size=chunk),
        random.normal(size=chunk),
        random.normal(size=(chunk, observation)),
    )
    ReplayBuffer(chunk, observation, action).add(part)  # so that its code is loaded
    before = resident()
    buffer = ReplayBuffer(capacity, observation, action)
    empty = resident() - before
    for _ in range(capacity // chunk):
        buffer.add(part)
    return {
        "rows": 4.0 * capacity * buffer.layout.width,
        "empty": float(empty),
        "full": float(resident() - before),
    }


if __name__ == "__main__":
    found = measure(sys.argv[1], int(sys.argv[2]))
    sys.stdout.write(json.dumps(found | {"memory": memory(1_000_000)}) + "\n")
