"""Beginning a run with the policy of another one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from eagerly.errors import RunError
from eagerly.spaces import Actions
from eagerly.spaces.serialization import restored_spaces
from eagerly.storage.checkpoint_reader import newest_intact
from eagerly.storage.loading import assign_weights
from eagerly.storage.run import open_run
from eagerly.storage.settings import flag_name
from eagerly.training.checkpointing import spaces_of

if TYPE_CHECKING:
    from eagerly.training.trainer import Trainer


# Settings that make another actor of the same weights.
_SAME_SHAPES = ("activation", "layer_norm", "memory", "attention_heads")


def begin_with_policy_of(trainer: Trainer, run_dir: str) -> None:
    """Gives the actor, and its target, the weights of another run's policy.

    It is the best one, or the latest where nothing was evaluated; with it come the statistics of
    normalised observations. Critics, optimisers and all else begin afresh. Where that run's spaces
    are others, of the same sizes, the reporter is told.

    Raises:
        RunError: If the directory is no run with a checkpoint, or its actor is another one.
    """
    agent, say = trainer.agent, trainer.reporter.say
    trainer.run.check_vouched_for("init_from")
    try:
        other = open_run(Path(run_dir), None, {}, trust=trainer.run.trusts_init_from)
    except RunError as error:
        raise RunError(f"--init-from: {error}") from error
    saved = newest_intact(other.path, say, with_replay=False)
    if saved is None:
        raise RunError(f"--init-from: {run_dir} has no checkpoint yet")
    state = saved.manifest.state
    mine, theirs = agent.config, other.agent_config
    for name in _SAME_SHAPES:
        if getattr(mine, name) != getattr(theirs, name):
            raise RunError(
                f"--init-from: {flag_name(name)} is {getattr(theirs, name)} in {run_dir} and "
                f"{getattr(mine, name)} in this run: its actor would be another one"
            )
    is_best = saved.manifest.best is not None
    try:
        weights = saved.best_policy() if is_best else saved.arrays("policy")
        actions = Actions(restored_spaces(state["spaces"])[1])
        if (actions.continuous, actions.choices) != (
            trainer.actions.continuous,
            trainer.actions.choices,
        ):
            raise ValueError(f"its actions are {actions.space}")
        assign_weights(agent.networks.actor, weights)
        if agent.normalization is not None:
            agent.normalization.restore(state["normalization"])
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(
            f"--init-from: the actor of {run_dir} does not fit this run's: {error}"
        ) from error
    agent.networks.actor_target.set_weights(agent.networks.actor.get_weights())
    agent.networks.policy.refresh()
    spaces = spaces_of(trainer)
    if state["spaces"].keys() == spaces.keys() and state["spaces"] != spaces:
        say(f"note: {run_dir} has other spaces than this run: {state['spaces']}, not {spaces}")
    step = int(state["best"][0]) if is_best else saved.manifest.steps
    say(f"begins with the policy of {run_dir}, of step {step}")
