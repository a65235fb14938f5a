"""Times a training run of eagerly after its warm-up.

Run as `python -m eagerly.benchmarks.contenders.ours AGENT SETTINGS FROM TO`: prints one line of
JSON. SETTINGS is one JSON object, such as '{"env": "HalfCheetah-v5"}'. The steps from FROM to TO
are timed, with environments, acting, replay, updates and summaries. There are no evaluations,
because the timed runs of the peers have none either.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from eagerly import Trainer, open_run
from eagerly.training.callbacks import Callback, TrainerView


class StopWatch(Callback):
    """Records the times at which a run reaches given steps, and stops it at the last one.

    Args:
        marks: Steps in ascending order.
    """

    def __init__(self, marks: list[int]) -> None:
        self._marks = list(marks)
        self.times: list[tuple[int, float]] = []

    def on_round(self, training: TrainerView) -> None:
        """Records the time if the run has reached the next mark."""
        if self._marks and training.steps >= self._marks[0]:
            self.times.append((training.steps, time.perf_counter()))
            self._marks.pop(0)
            if not self._marks:
                training.stop("timed")  # skips the final evaluation


def settings_for(settings: dict[str, Any], steps: int) -> dict[str, Any]:
    """Adds the defaults of timed runs to `settings`: no evaluation and a short warm-up."""
    return {
        "steps": steps,
        "warmup_steps": 1000,
        "evaluate_every_steps": 10**9,
        "check_env": False,
    } | settings


def timed_run(agent: str, settings: dict[str, Any], start: int, stop: int) -> dict[str, Any]:
    """Trains up to step `stop` and returns the number and the time of the steps from `start` on."""
    watch = StopWatch([start, stop])
    with tempfile.TemporaryDirectory() as folder:
        run = open_run(Path(folder) / "run", agent, settings_for(settings, stop))
        with Trainer(run, [watch]) as trainer:
            trainer.train()
            updates = trainer.updates
    (first, began), (last, ended) = watch.times
    return {"steps": last - first, "seconds": ended - began, "updates_in_all": updates}


if __name__ == "__main__":
    name, given, first, last = sys.argv[1:]
    sys.stdout.write(json.dumps(timed_run(name, json.loads(given), int(first), int(last))) + "\n")
