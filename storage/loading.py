"""Loading the policy of a run, as its user calls it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import keras
import numpy as np

from eagerly.agents import agent_class
from eagerly.errors import RunError
from eagerly.importing import while_used
from eagerly.networks import acting_policy
from eagerly.policies.policy import Policy
from eagerly.quiet import find_devices
from eagerly.spaces.serialization import restored_spaces
from eagerly.storage.checkpoint_reader import Checkpoint, required_checkpoint
from eagerly.storage.evaluations import read_results
from eagerly.storage.run import Run, open_run

_log = logging.getLogger(__name__)
WHICH = ("best", "latest")


def load_policy(
    run_dir: str | Path,
    which: str | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    trust: bool = False,
) -> Policy:
    """Loads the policy of a run as its newest checkpoint has it.

    Of the run only the weights of its actor and its evaluations are read; no environment is made.

    Args:
        run_dir: The run directory.
        which: "best", the policy with the best evaluation since the first update, or "latest".
            None: the best one; where there is none yet the latest, with a warning in the log.
            `Policy.which` says which it is.
        settings: The factory of its models where that is not `module:factory` but from a Python
            program, as `{"actor": factory}` or `{"models": factory}`.
        trust: Whether to import the agent or the models that the directory names, even if somebody
            else made it. Those of runs that you have trained there are imported without it.

    Raises:
        RunError: If the directory is not a run, there is no checkpoint, or no best policy where
            that was asked for, or its weights do not fit the settings.
    """
    if which not in (None, *WHICH):
        raise RunError(f"which must be one of {', '.join(WHICH)}; got {which!r}")
    run = open_run(Path(run_dir), None, settings or {}, trust=trust)
    return policy_of(run, which)


def policy_of(run: Run, which: str | None) -> Policy:
    """Loads the policy of a run that is open, as `load_policy` does."""
    saved = required_checkpoint(run.path, with_replay=False)
    find_devices()
    try:
        return _policy(run, saved, which)
    except RunError:
        raise
    except Exception as error:  # whatever is in a directory that somebody handed over
        raise RunError(
            f"the policy of {run.path} does not fit its settings: {type(error).__name__}: {error}"
        ) from error


def _policy(run: Run, saved: Checkpoint, which: str | None) -> Policy:
    found = saved.policies()
    if "best" not in found and _evaluated_at_end(run, saved):
        found["best"] = found["latest"]
    since = "its settings were overridden" if run.overridden_at() else "its first update"
    no_best = f"{run.path} has no best policy yet, because it has not been evaluated since {since}"
    if which is None:
        which = "best" if "best" in found else "latest"
        if which == "latest":
            _log.warning("%s: taking the latest policy, of step %s", no_best, saved.manifest.steps)
    elif which not in found:
        raise RunError(f'{no_best}: ask for the latest one, with --which latest or which="latest"')
    weights, steps = found[which]
    spaces = restored_spaces(saved.manifest.spaces)
    kind, config, seed = agent_class(run.agent), run.agent_config, run.config.seed
    builder = kind.Builder(config, *spaces, seed=seed)
    least, count = builder.least_parameters(actor_alone=True), sum(w.size for w in weights.values())
    if least > count:  # not even made, as large as it may be
        raise ValueError(f"it has {count} weights, and the settings ask for more than {least}")
    with while_used(run.agent_module):
        actor = builder.policy_actor()
    assign_weights(actor, weights)
    observations, actions = config.spaces(*spaces)
    return Policy(acting_policy(actor, actions.size), observations, actions, steps, which)


def _evaluated_at_end(run: Run, saved: Checkpoint) -> bool:
    """Whether the latest policy has the only evaluation that counts, made after its checkpoint."""
    with suppress(RunError):  # a damaged table ends no loading
        results = read_results(run.evaluations_path)
        return bool(results.trained[-1:].any() and results.steps[-1] == saved.manifest.steps)
    return False


def assign_weights(model: keras.Model, weights: Mapping[str, np.ndarray]) -> None:
    """Gives a model the weights that were saved by path.

    Raises:
        ValueError: If a name or a shape differs; the model is unchanged then.
    """
    shapes = {variable.path: tuple(variable.shape) for variable in model.variables}
    given = {path: values.shape for path, values in weights.items()}
    if shapes != given:
        raise ValueError(f"expected weights {shapes}, got {given}")
    for variable in model.variables:
        variable.assign(weights[variable.path])
