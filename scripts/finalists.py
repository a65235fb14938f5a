"""Compares the best trials of a study with the settings without search, on fresh seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eagerly.errors import NonFiniteError, RunError
from eagerly.scripts.batch import Batch, check_finished, run_batch
from eagerly.scripts.flags import command
from eagerly.scripts.output import tell
from eagerly.scripts.trials import planned
from eagerly.storage.evaluations import format_return
from eagerly.storage.presets import OF_THE_TASK, write_preset
from eagerly.storage.run import open_run
from eagerly.storage.run_settings import flag_words
from eagerly.storage.trust import OUTSIDE
from eagerly.studies.study import Study
from eagerly.studies.trials import COMPLETE, Trial, described, run_score

_BASELINE = "baseline"  # directory of the runs with the settings without search


def train_finalists(
    study: Study,
    trials: Sequence[Trial],
    given: Mapping[str, Any],
    *,
    count: int,
    fresh: int,
    again: str,
    progress: bool,
) -> None:
    """Trains the best trials and the baseline on fresh seeds, and writes the best preset.

    Args:
        study: The study.
        trials: Its trials.
        given: Settings that all trials share, by name.
        count: Number of trials to train.
        fresh: Number of fresh seeds.
        again: The command that continues the study.
        progress: Whether to show a progress bar in a terminal.

    Raises:
        RunError: If no trial is complete, or each finalist has a run that diverged.
    """
    complete = [t for t in trials if t.state == COMPLETE and t.score is not None]
    if not complete:
        raise RunError(f"no trial is complete: {len(trials)} were pruned or failed")
    best = sorted(complete, key=lambda trial: -(trial.score or 0.0))[:count]
    drawn = {f"trial-{trial.number:04d}": study.given(trial.drawn) for trial in best}
    seeds = range(max(study.seeds) + 1, max(study.seeds) + 1 + fresh)
    runs, folder = [], study.path / "final"
    for name, settings in {_BASELINE: {}, **drawn}.items():
        paths = [folder / name / f"seed-{seed}" for seed in seeds]
        runs += planned(name, study.agent, paths, seeds, {**given, **settings})
    title = f"{len(best)} finalist{'s' * (len(best) > 1)} and the baseline"
    batch = Batch(runs, folder, title, again, study.jobs)
    jobs = run_batch(batch, progress=progress)
    done = [j for j in jobs if j.state == "finished" or j.exit_code == NonFiniteError.exit_code]
    check_finished(batch, jobs, done)
    scores: dict[str, list[float]] = {}
    for job in jobs:
        score = run_score(job.run.path) if job.state == "finished" else math.nan
        score = score if math.isfinite(score) else -math.inf
        scores.setdefault(job.run.path.parent.name, []).append(score)
    _print_scores({name: np.array(found) for name, found in scores.items()})
    winner = max(drawn, key=lambda name: sum(scores[name]))
    if not math.isfinite(sum(scores[winner])):
        raise RunError("each finalist has a run without a score: no preset is written")
    target = study.path / "best.toml"
    write_preset(target, open_run(folder / winner / f"seed-{seeds[0]}", None, {}))
    tell(f"{'preset':<14}{target}: {described(drawn[winner])}")
    # A preset file may not set names of code and addresses.
    own = OF_THE_TASK | OUTSIDE.keys()
    task = {name: value for name, value in given.items() if name in own}
    words = [study.agent, *flag_words(task), "--preset", str(target)]
    tell(f"{'use with':<14}{command('train.py', *words)}")


def _print_scores(scores: Mapping[str, np.ndarray]) -> None:
    """Prints the mean score of each group of runs, and its difference from the baseline."""
    from eagerly.curves.estimates import difference  # slow to import

    is_better = False
    for name, found in scores.items():
        mean = float(found.mean())
        text = format_return(mean) if math.isfinite(mean) else "a run diverged or has no score"
        line = f"{name:<14}mean score over {len(found)} fresh seeds: {text}"
        if name != _BASELINE and np.isfinite([*found, *scores[_BASELINE]]).all():
            gain = difference(found, scores[_BASELINE])
            line += f"; difference from the baseline: {gain} (interquartile means, 95 %)"
            is_better |= bool(gain.low > 0)
        tell(line)
    if not is_better:
        tell("no finalist is better than the baseline with 95 % confidence")
