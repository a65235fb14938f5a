"""How long a run has taken, read from its event files."""

from __future__ import annotations

from pathlib import Path

from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

_PATTERN, _TAG = "events.out.tfevents.*", "evaluation/return_mean"


def seconds_at_evaluations(run: Path) -> dict[int, float]:
    """Returns the wall time at which each evaluation of a run was done, by its step.

    Every process of a run writes a file of its own, which begins with its first step: the time
    between two of them, in which nothing ran, is left out, and so is what a process did after its
    last point, `summarize_every_steps` steps at most.
    """
    before, found = 0.0, {}
    for file in sorted(run.glob(_PATTERN)):
        first = last = None
        for event in EventFileLoader(str(file)).Load():
            first = event.wall_time if first is None else first
            last = event.wall_time
            if any(value.tag == _TAG for value in event.summary.value):
                found[int(event.step)] = before + last - first
        if first is not None and last is not None:
            before += last - first
    return found
