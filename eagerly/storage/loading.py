"""Loads the policies of runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from eagerly.agents import agent_names
from eagerly.agents.config import AgentConfig
from eagerly.errors import RunError, UsageError, summary
from eagerly.policies.numpy_actor import numpy_actor
from eagerly.policies.policy import Policy
from eagerly.policies.weights import named
from eagerly.spaces.serialization import restored_spaces
from eagerly.storage.built_in_settings import built_in_settings
from eagerly.storage.checkpoint_reader import Checkpoint, required_checkpoint
from eagerly.storage.config import NO_EVALUATIONS
from eagerly.storage.run import CHECKED_LATER, Run, open_run
from eagerly.storage.run_document import read_document_of
from eagerly.storage.run_settings import check_saved
from eagerly.storage.trust import is_trusted, outside_settings

_log = logging.getLogger(__name__)
WHICH = ("best", "latest")


def load_policy(
    run_dir: str | Path,
    which: str | None = None,
    *,
    trust: bool = False,
    **settings: Any,
) -> Policy:
    """Loads a policy from the newest checkpoint of a run.

    Only the actor's weights and the evaluations are read, and no environment is created. A built-in
    actor runs in NumPy, without importing TensorFlow, a custom agent or a custom critic. A custom
    actor runs in TensorFlow.

    Args:
        run_dir: The run directory.
        which: "best", the policy with the best evaluation since the first update, or "latest". None
            selects the best policy or, if there is none yet, the latest one with a logged warning
            (without it if the run is never evaluated).
            `Policy.which` records the selection.
        trust: Whether to import an agent or models named by the directory, even if another user
            created it. Built-in actors and runs that you trained in that directory do not need
            this.
        **settings: `actor=factory` or `models=factory`, if a Python program trained the run with
            such a factory of networks.

    Raises:
        RunError: If the directory is not a run, names untrusted code or has no checkpoint, if the
            best policy is requested but does not exist yet, or if the weights do not match the
            settings.
    """
    if which not in (None, *WHICH):
        raise UsageError(f"which must be one of {', '.join(WHICH)}; got {which!r}")
    run, saved = open_policy_run(Path(run_dir), settings, trust=trust)
    return policy_of(run, which, saved)


def open_policy_run(
    path: Path, settings: Mapping[str, Any], *, trust: bool = False
) -> tuple[Run, Checkpoint | None]:
    """Opens a run to load its policy. If its actor is built in, no other custom code is imported.

    Args:
        path: The run directory.
        settings: Settings given by the user. If there are any, the agent is imported.
        trust: As in `open_run`.

    Returns:
        The run, and its newest checkpoint, if this function has verified it.

    Raises:
        RunError: As `load_policy`.
    """
    run, saved = (None, None) if settings else _without_import(path, trust)
    return run or open_run(path, None, settings, trust=trust), saved


def policy_of(run: Run, which: str | None, saved: Checkpoint | None = None) -> Policy:
    """Loads a policy from an open run, by default from its newest checkpoint; see `load_policy`."""
    saved = saved or required_checkpoint(run.path, with_replay=False)
    with _as_run_error(run.path):
        return _policy(run, saved, which)


def _without_import(path: Path, trusted: bool) -> tuple[Run | None, Checkpoint | None]:
    """Opens the run of a custom agent or critic with a built-in actor, without importing them.

    Returns:
        The run, with the built-in settings that describe the actor, or None for other runs; and its
        newest checkpoint, if this function has verified it.
    """
    document = read_document_of(path)
    agent, settings = document["agent"], document["settings"]
    if agent in agent_names() and not settings.get("critic"):
        return None, None
    saved = required_checkpoint(path, with_replay=False)
    with _as_run_error(path):
        config = _actor_config(saved, settings)
        if config is None or config.actor or config.models:
            return None, saved
        run_config, history = check_saved(document), document["history"]
    named = outside_settings(document)
    asked = {} if trusted or is_trusted(path, named) else named
    untrusted = {name: asked[name] for name in asked.keys() & CHECKED_LATER}
    more = {"history": history, "untrusted": untrusted, "named": named}
    return Run(path, agent, run_config, config, is_new=False, **more), saved


@contextmanager
def _as_run_error(path: Path) -> Iterator[None]:
    try:
        yield
    except RunError:
        raise
    except Exception as error:  # run directories are untrusted input
        raise RunError(f"the policy of {path} cannot be loaded: {summary(error)}") from error


def _actor_config(saved: Checkpoint, settings: Mapping[str, Any]) -> AgentConfig | None:
    """Returns the built-in settings that describe a custom agent's actor, or None."""
    name = saved.manifest.state["policies"].get("settings_class")
    return None if name is None else built_in_settings(name, settings)


def _policy(run: Run, saved: Checkpoint, which: str | None) -> Policy:
    found = saved.policies(run.last_override)
    if "best" not in found and _evaluated_at_end(run, saved):
        found["best"] = found["latest"]
    why = "no policy has been evaluated since the first update"
    is_never_evaluated = run.config.evaluations == NO_EVALUATIONS
    if is_never_evaluated:
        why = "it is never evaluated (--evaluations none)"
    elif run.overridden_at():
        why = "it has not been evaluated since its settings were overridden"
    no_best = f"{run.path} has no best policy yet, because {why}"
    if which is None:
        which = "best" if "best" in found else "latest"
        if which == "latest" and not is_never_evaluated:
            _log.warning("%s: using the latest policy, from step %s", no_best, saved.manifest.steps)
    elif which not in found:
        raise UsageError(f'{no_best}: select the latest one with --which latest or which="latest"')
    weights, steps = found[which]
    spaces = restored_spaces(saved.manifest.spaces)
    observations, actions = run.agent_config.spaces(*spaces)
    config = run.agent_config
    if run.agent_module is not None:
        config = _actor_config(saved, run.settings())
    architecture = config and config.actor_architecture(observations, actions)
    actor: Any
    if architecture is None:
        from eagerly.storage.custom_policy import custom_actor  # imports TensorFlow

        actor = custom_actor(run, spaces, weights)
    else:
        actor = numpy_actor(architecture, named(weights), config.variable_dtype)
    return Policy(actor, observations, actions, steps, which)


def _evaluated_at_end(run: Run, saved: Checkpoint) -> bool:
    """Returns whether the latest policy was evaluated after its checkpoint was written."""
    with suppress(RunError):  # a damaged table must not prevent loading
        results = run.results()
        return bool(results.counted[-1:].any() and results.last_step == saved.manifest.steps)
    return False
