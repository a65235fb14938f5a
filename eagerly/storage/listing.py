"""What runs there are, and how far they came; nothing in them is changed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from eagerly.errors import RunError
from eagerly.storage.evaluations import LAST, read_results
from eagerly.storage.files import RunFiles, run_directories
from eagerly.storage.lock import is_locked
from eagerly.storage.manifest import folders_of, is_finished, published
from eagerly.storage.run import read_document_of
from eagerly.storage.run_settings import check_saved


@dataclass(frozen=True)
class RunSummary:
    """A run at a glance.

    Attributes:
        path: The run directory.
        state: "running", "finished", "stopped", "not begun" or "damaged".
        env: Environment, or "" where it cannot be read.
        agent: Name of the agent, or "".
        seed: Its seed.
        steps: Environment steps that are known: of the newest checkpoint or evaluation.
        of_steps: Length of the run.
        best: Return of the best evaluation since the first update; None without one.
        last: Mean of the last 3 evaluations; None without one.
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
    """Summarises the runs in a folder and its folders, by name; or the one that it is itself."""
    return [summary(path) for path in run_directories(folder)]


def summary(path: Path) -> RunSummary:
    """Summarises the run in a directory."""
    try:
        document = read_document_of(path)
        results = read_results(path / "evaluations.csv")
        manifests = published(path)
        if not manifests and folders_of(RunFiles(path)):
            raise RunError("no manifest can be read")
    except (RunError, OSError):  # whatever stands there: it is one line of the list
        return RunSummary(path, "damaged")
    settings = check_saved(document)
    saved = manifests[-1].steps if manifests else 0
    returns, evaluated = results.return_mean, int(results.steps[-1]) if results.steps.size else 0
    if is_locked(path):
        state = "running"
    elif not manifests:
        state = "not begun"
    else:
        state = "finished" if is_finished(path, manifests[-1], settings) else "stopped"
    return RunSummary(
        path,
        state,
        str(settings.env),
        document["agent"],
        settings.seed,
        max(saved, evaluated) if state == "running" else saved,
        settings.steps,
        float(returns[results.best]) if results.best is not None else None,
        float(returns[-LAST:].mean()) if returns.size else None,
    )
