"""Lists runs and their progress, without modifying them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from eagerly.errors import RunError
from eagerly.storage.evaluations import read_results
from eagerly.storage.files import RunFiles, run_directories
from eagerly.storage.lock import is_locked
from eagerly.storage.manifest import finished_by, folders_of, published
from eagerly.storage.run_document import last_override, read_document_of
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
        last: Mean return of the last 3 of these evaluations, or None.
    """

    path: Path
    state: str
    env: str = ""
    agent: str = ""
    seed: int = 0
    steps: int = 0
    of_steps: int = 0
    best: float | None = None
    last: float | None = None


def runs_below(folder: Path) -> list[RunSummary]:
    """Summarizes all runs below a directory, sorted by path, or the run in the directory itself."""
    return [summary(path) for path in run_directories(folder)]


def summary(path: Path) -> RunSummary:
    """Summarizes the run in a directory."""
    try:
        document = read_document_of(path)
        overridden_at = last_override(document["history"])
        results = read_results(path / "evaluations.csv", after=overridden_at)
        manifests = published(path)
        if not manifests and folders_of(RunFiles(path)):
            raise RunError("no manifest can be read")
    except (RunError, OSError):  # one damaged run must not prevent the listing
        return RunSummary(path, "damaged")
    settings = check_saved(document)
    saved = manifests[-1].steps if manifests else 0
    evaluated = results.last_step or 0
    if is_locked(path):
        state = "running"
    elif not manifests:
        state = "not begun"
    else:
        reached = finished_by(path, manifests[-1], settings, overridden_at)
        state = "finished" if reached else "stopped"
    return RunSummary(
        path,
        state,
        str(settings.env),
        document["agent"],
        settings.seed,
        max(saved, evaluated) if state == "running" else saved,
        settings.steps,
        results.best_return,
        results.score,
    )
