"""Saving a run, and taking it up again exactly where it was."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from eagerly.training.checkpoints import Checkpoints
from eagerly.training.conditions import conditions, differing
from eagerly.training.errors import RunError
from eagerly.training.manifest import Manifest
from eagerly.training.policies import recorded_spaces

if TYPE_CHECKING:
    from eagerly.training.trainer import Trainer


def save(trainer: Trainer, checkpoints: Checkpoints) -> None:
    """Writes a checkpoint of everything that the run's next step depends on.

    Raises:
        FloatingPointError: If a variable is not finite; nothing is published then.
    """
    episodes = trainer.environments.state()
    arrays = {f"actions_{i}": actions for i, actions in enumerate(episodes["actions"])}
    growing = trainer.summaries.flush()
    if trainer.run.evaluations_path.exists():
        growing.append(trainer.run.evaluations_path)
    checkpoints.save(
        steps=trainer.steps,
        updates=trainer.updates,
        write_networks=trainer.agent.networks.save,
        policy=trainer.agent.networks.policy_weights(),
        best=(trainer.best[0], trainer.best[2]) if trainer.best else None,
        buffer=trainer.buffer,
        episodes={"observations": episodes["observations"], **arrays},
        growing=growing,
        state={
            "owed": str(trainer.owed),
            "in_round": trainer.in_round,
            "episodes": episodes["episodes"],
            "best": trainer.best[:2] if trainer.best else None,
            "summaries": trainer.summaries.state(),
            "spaces": recorded_spaces(trainer.buffer.layout.observation_size, trainer.bounds),
            "random": {
                "exploration": trainer.agent.exploration.state(),
                "sampling": trainer.buffer.random_state,
                "warmup": dict(trainer.warmup.bit_generator.state),
            },
        },
        conditions=conditions(),
    )


def restore(trainer: Trainer, checkpoints: Checkpoints, manifest: Manifest) -> list[int]:
    """Takes over a checkpoint, but for the summaries; nothing on disk is touched.

    Returns:
        The environments that had to begin a fresh episode.

    Raises:
        RunError: If what was saved does not fit the settings.
    """
    state = manifest.state
    arrays = checkpoints.arrays(manifest, "episodes")
    episodes = {
        "episodes": state["episodes"],
        "actions": [arrays[f"actions_{i}"] for i in range(len(state["episodes"]))],
        "observations": arrays["observations"],
    }
    try:
        trainer.agent.networks.restore(checkpoints.networks_prefix(manifest))
        checkpoints.restore_buffer(manifest, trainer.buffer)
        lost = trainer.environments.restore(episodes)
        trainer.agent.exploration.restore(state["random"]["exploration"])
    except ValueError as error:
        raise RunError(f"what was saved does not fit the settings: {error}") from error
    trainer.steps, trainer.updates = manifest.steps, manifest.updates
    trainer.owed = Fraction(state["owed"])
    trainer.agent.begin_episodes(np.isin(np.arange(len(trainer.environments)), lost))
    trainer.buffer.random_state = state["random"]["sampling"]
    trainer.warmup.bit_generator.state = state["random"]["warmup"]
    # After an override scores may not be comparable: the search for the best policy begins anew.
    overridden_at = [manifest.steps] if trainer.run.overridden else trainer.run.overridden_at()
    if state["best"] and state["best"][0] > max(overridden_at, default=-1):
        trainer.best = (*state["best"], checkpoints.best_policy(manifest))
    changed = differing(manifest.conditions, conditions())
    if changed:
        trainer.reporter.say(
            "continued, but the last bits may differ from a run that never stopped: "
            + "; ".join(changed)
        )
    if lost:
        trainer.reporter.say(
            f"environments {lost} did not come back to where they were: they began a fresh "
            "episode, and the run differs from one that never stopped"
        )
    return lost
