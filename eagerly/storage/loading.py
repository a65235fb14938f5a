"""Loading the policy of a run, as its user calls it."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

from eagerly.errors import RunError
from eagerly.policies.architecture import check_weights, named
from eagerly.policies.numpy_actor import numpy_actor
from eagerly.policies.policy import Policy
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
    trust: bool = False,
    **settings: Any,
) -> Policy:
    """Loads the policy of a run as its newest checkpoint has it.

    Of the run only the weights of its actor and its evaluations are read; no environment is made.
    A built-in actor acts in NumPy, and TensorFlow is not imported; a model of your own is called
    through it.

    Args:
        run_dir: The run directory.
        which: "best", the policy with the best evaluation since the first update, or "latest".
            None: the best one; where there is none yet the latest, with a warning in the log.
            `Policy.which` says which it is.
        trust: Whether to import the agent or the models that the directory names, even if somebody
            else made it. Those of runs that you have trained there are imported without it.
        **settings: The factory of its networks if a Python program passed it, as `actor=factory`
            or `models=factory`.

    Raises:
        RunError: If the directory is not a run, there is no checkpoint, or no best policy where
            that was asked for, or its weights do not fit the settings.
    """
    if which not in (None, *WHICH):
        raise RunError(f"which must be one of {', '.join(WHICH)}; got {which!r}")
    run = open_run(Path(run_dir), None, settings, trust=trust)
    return policy_of(run, which)


def policy_of(run: Run, which: str | None) -> Policy:
    """Loads the policy of a run that is open, as `load_policy` does."""
    saved = required_checkpoint(run.path, with_replay=False)
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
    why = "no policy that has had an update was evaluated"
    if run.overridden_at():
        why = "it has not been evaluated since its settings were overridden"
    no_best = f"{run.path} has no best policy yet, because {why}"
    if which is None:
        which = "best" if "best" in found else "latest"
        if which == "latest":
            _log.warning("%s: taking the latest policy, of step %s", no_best, saved.manifest.steps)
    elif which not in found:
        raise RunError(f'{no_best}: ask for the latest one, with --which latest or which="latest"')
    weights, steps = found[which]
    spaces = restored_spaces(saved.manifest.spaces)
    observations, actions = run.agent_config.spaces(*spaces)
    # An agent of the user's own may act with another model than its settings describe.
    architecture = None
    if run.agent_module is None:
        architecture = run.agent_config.actor_architecture(observations, actions)
    actor: Any
    if architecture is None:
        from eagerly.storage.custom_policy import custom_actor  # and TensorFlow

        actor = custom_actor(run, spaces, weights)
    else:
        weights = named(weights)
        check_weights(architecture, weights, run.agent_config.variable_dtype)
        actor = numpy_actor(architecture, weights)
    return Policy(actor, observations, actions, steps, which)


def _evaluated_at_end(run: Run, saved: Checkpoint) -> bool:
    """Whether the latest policy has the only evaluation that counts, made after its checkpoint."""
    with suppress(RunError):  # a damaged table ends no loading
        results = read_results(run.evaluations_path)
        return bool(results.trained[-1:].any() and results.steps[-1] == saved.manifest.steps)
    return False
