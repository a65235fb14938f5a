"""Optuna's sampler and pruner as functions of the earlier trials, without Optuna's storages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eagerly.errors import UsageError
from eagerly.studies.trials import COMPLETE, PRUNED, Trial

Distributions = Mapping[str, Any]  # Optuna's distribution of each searched setting


def require_optuna() -> None:
    """Raises a `RunError` with the command that installs Optuna if it is missing."""
    try:
        import optuna
    except ImportError as error:
        raise UsageError("studies require Optuna: pip install 'eagerly[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def in_memory(trials: Sequence[Trial], distributions: Distributions, sampler: Any = None) -> Any:
    """Returns an Optuna study with these trials."""
    import optuna
    from optuna.trial import TrialState

    states = {COMPLETE: TrialState.COMPLETE, PRUNED: TrialState.PRUNED}
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for trial in trials:
        state = TrialState.FAIL if trial.score is None else states.get(trial.state, TrialState.FAIL)
        study.add_trial(_frozen(trial, distributions, state))
    return study


def draw(
    seed: int, number: int, earlier: Sequence[Trial], distributions: Distributions
) -> Mapping[str, Any]:
    """Draws the values of a trial with Optuna's tree-structured Parzen estimator.

    Args:
        seed: Seed of the study.
        number: The number of the trial.
        earlier: The trials whose results determine the values.
        distributions: The distributions, by setting.
    """
    from optuna.samplers import TPESampler

    state = np.random.SeedSequence([seed, number]).generate_state(1)
    study = in_memory(earlier, distributions, TPESampler(seed=int(state[0])))
    return dict(study.ask(distributions).params)


def is_pruned(trial: Trial, study: Any, distributions: Distributions) -> bool:
    """Returns whether the median pruner would stop a trial after its newest value.

    Args:
        trial: The trial.
        study: The earlier trials, from `in_memory`.
        distributions: The distributions, by setting.
    """
    from optuna.pruners import MedianPruner
    from optuna.trial import TrialState

    return bool(MedianPruner().prune(study, _frozen(trial, distributions, TrialState.RUNNING)))


def _frozen(trial: Trial, distributions: Distributions, state: Any) -> Any:
    from optuna.trial import TrialState, create_trial

    has_value = state in (TrialState.COMPLETE, TrialState.PRUNED)
    return create_trial(
        state=state,
        value=trial.score if has_value else None,
        params=dict(trial.drawn),
        distributions=dict(distributions),
        intermediate_values=dict(trial.values),
    )
