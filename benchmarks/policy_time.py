"""Measures the cost of loading and calling a trained policy: `policy_time.py RUN_DIR`."""

from __future__ import annotations

import resource
import statistics
import sys
import time
from pathlib import Path

import numpy as np

TABLE = Path(__file__).with_suffix(".md")


def microseconds(call: object, argument: np.ndarray, repeats: int = 2000) -> tuple[float, float]:
    """Returns the median and the 99th percentile of the time of single calls."""
    assert callable(call)
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        call(argument)
        times.append((time.perf_counter() - started) * 1e6)
    return statistics.median(times), float(np.percentile(times, 99))


def main(run_dir: str) -> None:
    """Measures and writes the table."""
    from eagerly import load_policy

    policy = load_policy(run_dir, "latest")
    policy(np.zeros(policy.observation_size))
    used = time.process_time()  # since the process started, including Python itself
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    random = np.random.default_rng(0)
    lines = [
        "# Cost of a loaded policy",
        "",
        f"An actor with {policy.observation_size} observation values and {policy.action_size} "
        "action values was loaded and called once in a fresh process. Up to the end of this "
        f"call, the process used {used:.2f} s of CPU time, including imports, and at most "
        f"{peak:.0f} MiB of memory.",
        "",
        "| argument of a call | median | 99th percentile |",
        "|---|---|---|",
    ]
    for rows in (1, 16, 256):
        observation = random.normal(size=(rows, policy.observation_size)).astype(np.float32)
        median, high = microseconds(policy, observation[0] if rows == 1 else observation)
        what = "one observation" if rows == 1 else f"a batch of {rows}"
        lines.append(f"| {what} | {median:.0f} µs | {high:.0f} µs |")
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    sys.stdout.write(TABLE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main(sys.argv[1])
