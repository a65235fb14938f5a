"""Changes keyword arguments of the training environments during a run."""

from __future__ import annotations

import copy
import json
import sys
from typing import Any

from eagerly.environments.group import UNCHANGED
from eagerly.errors import RunError
from eagerly.storage.config import RunConfig
from eagerly.storage.run import Run
from eagerly.training.offline import NoEnvironments
from eagerly.workers.environment_groups import Environments


def current_kwargs(run: Run, environments: Environments | NoEnvironments) -> dict[str, Any]:
    """Returns a copy of the setting `env_kwargs`, merged with the changes so far."""
    return copy.deepcopy(run.config.env_kwargs) | changed_kwargs(environments)


def changed_kwargs(environments: Environments | NoEnvironments) -> dict[str, Any]:
    """Returns the keyword arguments that were changed so far."""
    changed: dict[str, Any] = json.loads(environments.kwargs)
    return changed


def change_kwargs(
    run: Run, environments: Environments | NoEnvironments, changes: dict[str, Any]
) -> None:
    """Changes keyword arguments of the training environments; see `TrainerView.set_env_kwargs`.

    Args:
        run: The run, which is recorded as trusted with these arguments.
        environments: The training environments.
        changes: New values by name.
    """
    if isinstance(environments, NoEnvironments):
        raise RunError("set_env_kwargs: an offline run has no training environments")
    for name, value in changes.items():
        if expected := RunConfig.SETTINGS["env_kwargs"].expected({name: value}):
            raise TypeError(
                f"set_env_kwargs: {name} must be a finite number, a boolean, text, None, or a list "
                f"or dictionary of these, since checkpoints store it as JSON; got {value!r} "
                f"({type(value).__name__}), and {expected} is required"
            )
    changed = changed_kwargs(environments)
    before = run.config.env_kwargs | changed
    if _text(before | changes) != _text(before):
        run.trust_kwargs(changed | changes)
        environments.kwargs = _text(changed | changes)


def scalars(environments: Environments | NoEnvironments) -> dict[str, float]:
    """Returns the changed arguments that are numbers or booleans, for the curves."""
    if environments.kwargs == UNCHANGED:
        return {}
    return {
        f"env/{name}": float(value)
        for name, value in changed_kwargs(environments).items()
        if isinstance(value, int | float) and abs(value) <= sys.float_info.max
    }


def _text(kwargs: dict[str, Any]) -> str:
    return json.dumps(kwargs, sort_keys=True, allow_nan=False)
