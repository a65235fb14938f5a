"""Lists runs and their progress, without modifying them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from eagerly.errors import RunError
from eagerly.storage.files import RunFiles, run_directories
from eagerly.storage.lock import is_locked
from eagerly.storage.manifest import finished_by, folders_of, published
from eagerly.storage.run_document import read_document_of, results_of
from eagerly.storage.run_settings import check_saved


@dataclass(frozen=True)
class RunSummary:
    """A summary of a run.

    Attributes:
        path: The run directory.
        state: "running", "finished", "stopped", "not begun" or "damaged".
        env: Name of the environment, or "" if it cannot be read.
        agent: Name of the agent, or "".
        seed: Seed of the run.
        steps: Environment steps at the newest checkpoint or, while the run is in progress, at a
            later evaluation.
        of_steps: Total steps of the run.
        best: Return of the best evaluation since the first update and the last override, or None.
            Unless the run is in progress, evaluations after the newest checkpoint do not count,
            because resuming discards them.
        score: Mean return of the last 3 of these evaluations, or None.
        problem: Why the run is damaged, or "".
    """

    path: Path
    state: str
    env: str = ""
    agent: str = ""
    seed: int = 0
    steps: int = 0
    of_steps: int = 0
    best: float | None = None
    score: float | None = None
    problem: str = ""


def runs_below(folder: Path) -> list[RunSummary]:
    """Summarizes all runs below a directory, sorted by path, or the run in the directory itself."""
    return [summary(path) for path in run_directories(folder)]


def summary(path: Path) -> RunSummary:
    """Summarizes the run in a directory."""
    try:
        document = read_document_of(path)
        results = results_of(path, document["history"])
        manifests = published(path)
        if not manifests and folders_of(RunFiles(path)):
            raise RunError("no manifest can be read")
    except (RunError, OSError) as error:  # one damaged run must not prevent the listing
        return RunSummary(path, "damaged", problem=str(error))
    settings = check_saved(document)
    steps = manifests[-1].steps if manifests else 0
    if is_locked(path):
        state, steps = "running", max(steps, results.last_step or 0)
    elif not manifests:
        state = "not begun"
    else:
        reached = finished_by(path, manifests[-1], settings, results.after)
        state = "finished" if reached else "stopped"
    results = replace(results, counted=results.counted & (results.steps <= steps))
    return RunSummary(
        path,
        state,
        str(settings.env),
        document["agent"],
        settings.seed,
        steps,
        settings.steps,
        results.best_return,
        results.score,
    )
