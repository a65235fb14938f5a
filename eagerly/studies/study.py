"""A study is a directory of run directories, from which everything else is computed.

The settings of trial n depend only on the seed of the study and on the results of trials 0 to
n - jobs. They do not depend on the times at which trials end, so a study that is killed at any
moment and continued is the same study, also if several trials run at the same time. Optuna's
samplers and pruners are used without their storages: for each trial, an in-memory study receives
the earlier trials.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from eagerly.errors import RunError, UsageError
from eagerly.settings import with_tuples
from eagerly.storage.documents import read_document, unsealed, write_document
from eagerly.storage.evaluations import read_results
from eagerly.storage.files import RunFiles
from eagerly.storage.manifest import finished_by, published
from eagerly.storage.run_settings import format_setting
from eagerly.studies.space import Dimension, Space

DOCUMENT, FORMAT = "study.json", 1
COMPLETE, PRUNED, FAILED, RUNNING = "complete", "pruned", "failed", "running"
PRUNERS = ("median", "none")
_FAILURE = "failed.txt"  # in the directory of a trial
_SHARE = 3  # the score is the mean of the last third of the evaluations


def require_optuna() -> None:
    """Raises a `RunError` with the command that installs Optuna if it is missing."""
    try:
        import optuna
    except ImportError as error:
        raise UsageError("studies require Optuna: pip install 'eagerly[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)


@dataclass(frozen=True)
class Trial:
    """A trial: settings and what is known about their runs.

    Attributes:
        number: The number of the trial, from 0.
        drawn: Values drawn by Optuna, by setting.
        state: `COMPLETE`, `PRUNED`, `FAILED` or `RUNNING`.
        values: The mean return over the seeds by step, up to the step at which it was pruned.
    """

    number: int
    drawn: Mapping[str, Any]
    state: str = RUNNING
    values: Mapping[int, float] = field(default_factory=dict)

    @property
    def score(self) -> float | None:
        """The mean of the last third of the evaluations, or None without one."""
        return score_of(list(self.values.values()))


def score_of(returns: Sequence[float]) -> float | None:
    """Returns the mean of the last third of some returns, or None without returns."""
    count = math.ceil(len(returns) / _SHARE)
    return float(np.mean(returns[-count:])) if count else None


def described(settings: Mapping[str, Any]) -> str:
    """Returns settings as text. Numbers have four significant digits."""
    return ", ".join(
        f"{name} {f'{value:.4g}' if isinstance(value, float) else format_setting(value)}"
        for name, value in settings.items()
    )


def final_score(run: Path) -> float:
    """Returns the score of a finished run, as for a trial; NaN without an evaluation that counts.

    Raises:
        RunError: If the evaluations are damaged.
    """
    score = score_of(list(_counted(run / "evaluations.csv").values()))
    return math.nan if score is None else score


class Study:
    """A study in a directory.

    Args:
        path: The directory.
        agent: Name of the agent.
        settings: Settings that all trials share, by name, in the form of `as_saved`.
        space: The search space.
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
        self.path, self.agent, self.space = path, agent, space
        self.settings, self.seeds = settings, tuple(seeds)
        self.jobs, self.pruner, self.seed = jobs, pruner, seed
        self._distributions = {name: each.distribution() for name, each in space.items()}

    @classmethod
    def read(cls, path: Path) -> Study:
        """Reads the study in a directory.

        Raises:
            RunError: If the directory contains no study, or it is damaged.
        """
        try:
            saved = unsealed(read_document(RunFiles(path), DOCUMENT))
            space = {n: Dimension(n, **_arguments(each)) for n, each in saved["space"].items()}
            found = cls(
                path,
                str(saved["agent"]),
                dict(saved["settings"]),
                space,
                seeds=[int(seed) for seed in saved["seeds"]],
                jobs=int(saved["jobs"]),
                pruner=str(saved["prune"]),
                seed=int(saved["seed"]),
            )
        except FileNotFoundError as error:
            raise UsageError(f"{path} is not a study: it has no {DOCUMENT}") from error
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunError(f"{path / DOCUMENT} cannot be read: {error!r}") from error
        found.open()
        return found

    def document(self) -> dict[str, Any]:
        """Returns what determines the trials, as saved in `study.json`."""
        return {
            "format": FORMAT,
            "agent": self.agent,
            "settings": json.loads(json.dumps(self.settings)),
            "space": json.loads(json.dumps({n: d.document() for n, d in self.space.items()})),
            "seeds": list(self.seeds),
            "jobs": self.jobs,
            "prune": self.pruner,
            "seed": self.seed,
            "optuna": importlib.metadata.version("optuna"),
        }

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
        try:
            saved = unsealed(read_document(files, DOCUMENT))
        except (OSError, ValueError) as error:
            raise RunError(f"{self.path / DOCUMENT} cannot be read: {error}") from error
        for name in sorted(saved.keys() | own.keys()):
            if (old := saved.get(name)) != (new := own.get(name)):
                if isinstance(old, dict) and isinstance(new, dict):
                    name = min(n for n in old.keys() | new.keys() if old.get(n) != new.get(n))
                    old, new = old.get(name), new.get(name)
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
        from optuna.samplers import TPESampler

        state = np.random.SeedSequence([self.seed, number]).generate_state(1)
        sampler = TPESampler(seed=int(state[0]))
        study = self.in_memory(self._known(number, trials), sampler)
        return Trial(number, study.ask(self._distributions).params)

    def in_memory(self, trials: Sequence[Trial], sampler: Any = None) -> Any:
        """Returns an Optuna study with these trials."""
        import optuna

        study = optuna.create_study(direction="maximize", sampler=sampler)
        study.add_trials([self._frozen(trial) for trial in trials])
        return study

    def _frozen(self, trial: Trial) -> Any:
        from optuna.trial import TrialState, create_trial

        states = {COMPLETE: TrialState.COMPLETE, PRUNED: TrialState.PRUNED}
        has_score = trial.score is not None and trial.state in states
        return create_trial(
            state=states[trial.state] if has_score else TrialState.FAIL,
            value=trial.score if has_score else None,
            params=dict(trial.drawn),
            distributions=self._distributions,
            intermediate_values=dict(trial.values),
        )

    def record_failure(self, number: int, why: str) -> None:
        """Writes the file that marks a trial as failed. Without it, the trial is repeated."""
        folder = self.runs(number)[0].parent
        folder.mkdir(parents=True, exist_ok=True)
        RunFiles(folder).write(_FAILURE, [why.encode()])

    def judged(self, trial: Trial, trials: Sequence[Trial]) -> Trial:
        """Returns a trial with its state and values, read from its run directories.

        Args:
            trial: The trial.
            trials: As in `propose`, for the pruner.

        Raises:
            RunError: If the evaluations of a run are damaged.
        """
        tables = [_counted(run / "evaluations.csv") for run in self.runs(trial.number)]
        earlier = self._known(trial.number, trials)
        study = self.in_memory(earlier) if self.pruner != "none" else None
        values: dict[int, float] = {}
        for step in sorted(set.intersection(*(set(table) for table in tables))):
            values[step] = float(np.mean([table[step] for table in tables]))
            if study and self._is_pruned(replace(trial, values=values), study):
                return replace(trial, state=PRUNED, values=values)
        if RunFiles(self.runs(trial.number)[0].parent).is_file(_FAILURE):
            return replace(trial, state=FAILED, values=values)
        done = all(_is_finished(run) for run in self.runs(trial.number))
        return replace(trial, state=COMPLETE if done else RUNNING, values=values)

    def _known(self, number: int, trials: Sequence[Trial]) -> Sequence[Trial]:
        """Returns the trials whose results determine a trial, however long they take."""
        return trials[: max(0, number - self.jobs + 1)]

    def _is_pruned(self, trial: Trial, study: Any) -> bool:
        from optuna.pruners import MedianPruner
        from optuna.trial import TrialState, create_trial

        running = create_trial(
            state=TrialState.RUNNING,
            params=dict(trial.drawn),
            distributions=self._distributions,
            intermediate_values=dict(trial.values),
        )
        return bool(MedianPruner().prune(study, running))

    def replayed(self) -> list[Trial]:
        """Returns the trials whose directories exist, as far as they can be derived."""
        trials: list[Trial] = []
        while self.runs(len(trials))[0].parent.is_dir() and not self.waits(len(trials), trials):
            trials.append(self.judged(self.propose(len(trials), trials), trials))
        return trials

    def waits(self, number: int, trials: Sequence[Trial]) -> bool:
        """Returns whether a trial depends on a trial that has not ended."""
        return any(trial.state == RUNNING for trial in self._known(number, trials))

    def digest(self, trials: Sequence[Trial]) -> str:
        """Returns a SHA-256 digest of the settings, states and values of trials."""
        found = [[t.number, dict(t.drawn), t.state, list(t.values.items())] for t in trials]
        return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def _arguments(dimension: Mapping[str, Any]) -> dict[str, Any]:
    if "choices" in dimension:
        found = [with_tuples({"": choice})[""] for choice in dimension["choices"]]
        return {"choices": tuple(found)}
    return dict(dimension)


def _counted(table: Path) -> dict[int, float]:
    """Returns the mean return by step of the evaluations that count."""
    found = read_results(table)
    rows = zip(found.steps.tolist(), found.return_mean.tolist(), found.counted, strict=True)
    return {step: value for step, value, counts in rows if counts}


def _is_finished(run: Path) -> bool:
    from eagerly.storage.run import open_run

    manifests = published(run)
    return bool(manifests) and bool(
        finished_by(run, manifests[-1], open_run(run, None, {}).config, -1)
    )
