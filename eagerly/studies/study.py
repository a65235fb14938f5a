"""A study is a directory of run directories, from which everything else is computed.

The settings of trial n depend only on the seed of the study and on the results of trials 0 to
n - jobs. They do not depend on the times at which trials end, so a study that is killed at any
moment and continued is the same study, also if several trials run at the same time.
"""

from __future__ import annotations

import importlib.metadata
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from eagerly.errors import RunError, UsageError
from eagerly.state import checksum
from eagerly.storage.documents import read_document, unsealed, write_document
from eagerly.storage.files import RunFiles
from eagerly.storage.manifest import finished_by, published
from eagerly.storage.run_document import read_document_of, read_settings
from eagerly.storage.run_settings import check_saved
from eagerly.studies.sampling import draw, in_memory, is_pruned
from eagerly.studies.space import Space, saved_space
from eagerly.studies.trials import COMPLETE, FAILED, PRUNED, RUNNING, Trial, counted_returns

DOCUMENT, FORMAT = "study.json", 1
PRUNERS = ("median", "none")


class Study:
    """A study in a directory.

    Args:
        path: The directory.
        agent: Name of the agent.
        settings: Settings that all trials share, by name.
        space: The search space. The order of its settings has no effect.
        seeds: Seeds of the runs of each trial.
        jobs: Number of runs trained at the same time.
        pruner: "median" stops a trial whose best value so far is below the median of the earlier
            trials at the same step; "none" stops no trial.
        seed: Seed of the study.
    """

    def __init__(
        self,
        path: Path,
        agent: str,
        settings: Mapping[str, Any],
        space: Space,
        *,
        seeds: Sequence[int] = (0,),
        jobs: int = 1,
        pruner: str = "none",
        seed: int = 0,
    ) -> None:
        self.path, self.agent, self.space = path, agent, dict(sorted(space.items()))
        self.settings, self.seeds = settings, tuple(seeds)
        self.jobs, self.pruner, self.seed = jobs, pruner, seed
        self.distributions = {name: each.distribution() for name, each in self.space.items()}

    @classmethod
    def read(cls, path: Path) -> Study:
        """Reads the study in a directory.

        Raises:
            RunError: If the directory contains no study, or it is damaged.
        """
        saved = _read(path)
        try:
            return cls(
                path,
                str(saved["agent"]),
                dict(saved["settings"]),
                saved_space(saved["space"]),
                seeds=[int(seed) for seed in saved["seeds"]],
                jobs=int(saved["jobs"]),
                pruner=str(saved["prune"]),
                seed=int(saved["seed"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunError(f"{path / DOCUMENT} cannot be read: {error!r}") from error

    def document(self) -> dict[str, Any]:
        """Returns what determines the trials, as saved in `study.json`."""
        found = {
            "format": FORMAT,
            "agent": self.agent,
            "settings": self.settings,
            "space": {name: each.document() for name, each in self.space.items()},
            "seeds": self.seeds,
            "jobs": self.jobs,
            "prune": self.pruner,
            "seed": self.seed,
            "optuna": importlib.metadata.version("optuna"),
        }
        return dict(json.loads(json.dumps(found)))

    def open(self) -> None:
        """Creates the directory, or checks that it contains the same study.

        Raises:
            RunError: If the directory contains another study, or cannot be written.
        """
        files, own = RunFiles(self.path), self.document()
        if not files.is_file(DOCUMENT):
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                write_document(files, DOCUMENT, own, lambda _: None)
            except OSError as error:
                raise RunError(f"{self.path} cannot be written: {error}") from error
            return
        saved = _read(self.path)
        if "steps" not in saved.get("settings", {}):  # a study of version 0.2
            own["settings"].pop("steps", None)
        for name in sorted(saved.keys() | own.keys()):
            if (old := saved.get(name)) != (new := own.get(name)):
                if isinstance(old, dict) and isinstance(new, dict):
                    old, new = (defaultdict(lambda: "missing", each) for each in (old, new))
                    name = min(n for n in {*old, *new} if old[n] != new[n])
                    old, new = old[name], new[name]
                raise UsageError(
                    f"{self.path} contains another study: its {name} is {old}; got {new}. Repeat "
                    "its command, or choose another --study"
                )

    def runs(self, number: int) -> list[Path]:
        """Returns the run directories of a trial, one per seed."""
        return [self.path / "trials" / f"{number:04d}" / f"seed-{seed}" for seed in self.seeds]

    def given(self, drawn: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the settings for values drawn by Optuna."""
        return {name: self.space[name].value(value) for name, value in drawn.items()}

    def propose(self, number: int, trials: Sequence[Trial]) -> Trial:
        """Draws the values of a trial.

        Args:
            number: The number of the trial.
            trials: All trials up to `number` - `jobs`, each of which has ended.
        """
        earlier = self._earlier(number, trials)
        return Trial(number, draw(self.seed, number, earlier, self.distributions))

    def judged(self, trial: Trial, trials: Sequence[Trial]) -> Trial:
        """Returns a trial with its state and values, read from its run directories.

        If a run fails, the trial has failed once its other runs have reached the last evaluation of
        the failed one. The result is then the same however fast each run is.

        Args:
            trial: The trial.
            trials: As in `propose`, for the pruner.

        Raises:
            RunError: If the evaluations of a run are damaged, its settings are not those of the
                trial, or its seeds were never evaluated at the same step.
        """
        runs = self.runs(trial.number)
        for run in runs:
            self._check_settings(run, trial)
        tables = [counted_returns(run) for run in runs]
        known = None
        if self.pruner != "none":
            known = in_memory(self._earlier(trial.number, trials), self.distributions)
        values: dict[int, float] = {}
        for step in sorted(set.intersection(*(set(table) for table in tables))):
            values[step] = float(np.mean([table[step] for table in tables]))
            trial = replace(trial, state=RUNNING, values=dict(values))
            if known and is_pruned(trial, known, self.distributions):
                return replace(trial, state=PRUNED)
        last = [max(table, default=0) for table in tables]
        ended = [failure_of(run).is_file() for run in runs]
        if any(ended):
            until = min(step for step, failed in zip(last, ended, strict=True) if failed)
            ready = (f or s >= until for f, s in zip(ended, last, strict=True))
            return replace(trial, state=FAILED if all(ready) else RUNNING)
        if not all(map(_is_finished, runs)):
            return replace(trial, state=RUNNING)
        if not values and all(tables):
            raise RunError(
                f"the runs of {runs[0].parent} have no evaluation at the same step, so the trial "
                "has no score: use one seed, or --evaluations separate"
            )
        return replace(trial, state=COMPLETE)

    def _check_settings(self, run: Path, trial: Trial) -> None:
        if not RunFiles(run).is_file("config.json"):
            return
        saved = read_settings(run)
        for name, value in self.given(trial.drawn).items():
            if (own := saved.get(name)) != json.loads(json.dumps(value)):
                first = self.path / "trials" / f"{trial.number:04d}"
                raise RunError(
                    f"{run} has {name} {own}, but this trial of the study has {value}: an earlier "
                    f"trial was changed or removed, or Optuna was. Remove {first} and all later "
                    "trials, and continue the study"
                )

    def _earlier(self, number: int, trials: Sequence[Trial]) -> Sequence[Trial]:
        """Returns the trials whose results determine a trial, however long they take."""
        return trials[: max(0, number - self.jobs + 1)]

    def replayed(self) -> list[Trial]:
        """Returns the trials whose directories exist, as far as they can be derived."""
        trials: list[Trial] = []
        while self.runs(len(trials))[0].parent.is_dir() and not self.waits(len(trials), trials):
            trials.append(self.judged(self.propose(len(trials), trials), trials))
        return trials

    def waits(self, number: int, trials: Sequence[Trial]) -> bool:
        """Returns whether a trial depends on a trial that has not ended."""
        return any(trial.state == RUNNING for trial in self._earlier(number, trials))

    def digest(self, trials: Sequence[Trial]) -> str:
        """Returns a SHA-256 digest of the settings, states and values of trials."""
        found = [[t.number, dict(t.drawn), t.state, list(t.values.items())] for t in trials]
        return checksum(found)


def failure_of(run: Path) -> Path:
    """Returns the file that marks a run as failed. It contains the reason."""
    return run.with_name(f"{run.name}.failed")


def record_failure(run: Path, why: str) -> None:
    """Marks a run as failed.

    Raises:
        OSError: If the file cannot be written.
    """
    run.parent.mkdir(parents=True, exist_ok=True)
    RunFiles(run.parent).write(failure_of(run).name, [why.encode()])


def _read(path: Path) -> dict[str, Any]:
    try:
        return unsealed(read_document(RunFiles(path), DOCUMENT))
    except FileNotFoundError as error:
        raise UsageError(f"{path} is not a study: it has no {DOCUMENT}") from error
    except (OSError, ValueError) as error:
        raise RunError(f"{path / DOCUMENT} cannot be read: {error}") from error


def _is_finished(run: Path) -> bool:
    if not (manifests := published(run)):
        return False
    return bool(finished_by(run, manifests[-1], check_saved(read_document_of(run)), -1))
