"""Times sampling from buffers of several sizes, or the steps of runs with N environments.

Run as `python -m eagerly.benchmarks.contenders.scale replay` or `... environments ENV N KIND`:
prints one line of JSON. KIND is "here" for environments in this process, or "processes".
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from eagerly.benchmarks.workload import random_buffer

SIZES = (10**3, 10**4, 10**5, 10**6, 10**7)
CALLS = 200


def replay() -> dict[str, float]:
    """Returns the microseconds that sampling takes per update (batch size 256), by buffer size."""
    found = {}
    for size in SIZES:
        buffer = random_buffer(size, size)
        times = []
        for _ in range(CALLS):
            started = time.perf_counter()
            buffer.sample_rows(50, 256)
            times.append(time.perf_counter() - started)
        found[str(size)] = 1e6 * float(np.median(times)) / 50
    return found


def environments(env: str, count: int, kind: str) -> dict[str, float]:
    """Returns the microseconds per environment step of whole runs, with and without updates."""
    from eagerly.benchmarks.contenders.ours import timed_run

    settings: dict[str, Any] = {"env": env, "num_envs": count}
    if kind == "processes":
        settings |= {"collectors": kind, "group_size": 1, "rollout_steps": 25}
    trained = timed_run("td3", settings, 2000, 5000)
    acted = timed_run("td3", settings | {"replay_ratio": 1e-6, "warmup_steps": 100}, 1000, 9000)
    return {
        name: 1e6 * run["seconds"] / run["steps"]
        for name, run in (("with updates", trained), ("without", acted))
    }


if __name__ == "__main__":
    kind, *arguments = sys.argv[1:]
    result = (
        replay()
        if kind == "replay"
        else environments(arguments[0], int(arguments[1]), arguments[2])
    )
    sys.stdout.write(json.dumps(result) + "\n")
