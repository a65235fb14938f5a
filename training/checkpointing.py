"""Saving a run, and taking it up again exactly where it was."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from eagerly.errors import RunError
from eagerly.spaces.serialization import recorded_spaces
from eagerly.storage.checkpoint_reader import Saved
from eagerly.storage.checkpoint_writer import Checkpoints
from eagerly.storage.config import RunConfig
from eagerly.training.hardware import conditions, differing

if TYPE_CHECKING:
    from eagerly.training.trainer import Trainer


def save(trainer: Trainer, checkpoints: Checkpoints) -> None:
    """Writes a checkpoint of everything that the run's next step depends on.

    Raises:
        FloatingPointError: If a variable is not finite; nothing is published then.
        OSError: If something cannot be written; nothing is published then.
    """
    trainer.run.check_lock()
    episodes = trainer.environments.state()
    arrays = {f"actions_{i}": actions for i, actions in enumerate(episodes["actions"])}
    normalization = trainer.agent.normalization
    growing = [*trainer.evaluations.flush(), *trainer.summaries.flush()]
    checkpoints.save(
        steps=trainer.steps,
        updates=trainer.updates,
        write_networks=trainer.agent.networks.save,
        policy=trainer.agent.networks.policy_weights(),
        best=(trainer.best[0], trainer.best[2]) if trainer.best else None,
        buffer=trainer.buffer,
        episodes={
            "observations": episodes["observations"],
            **arrays,
            **trainer.agent.remembered(),
        },
        growing=growing,
        state={
            "owed": str(trainer.debt.updates),
            "in_round": trainer.in_round,
            "episodes": episodes["episodes"],
            "returns": episodes["returns"],
            "restorable": episodes["restorable"],
            "best": trainer.best[:2] if trainer.best else None,
            "summaries": trainer.summaries.state(),
            "spaces": spaces_of(trainer),
            "rows": trainer.buffer.added,
            "replay": trainer.buffer.state(),
            "normalization": normalization.state() if normalization else None,
            "random": {
                "exploration": trainer.agent.exploration.state(),
                "sampling": trainer.buffer.random_state,
                "warmup": dict(trainer.warmup.bit_generator.state),
            },
        },
        conditions=conditions(),
        config=trainer.run.document(),
    )


def restore(trainer: Trainer, saved: Saved) -> None:
    """Takes over a checkpoint; nothing on disk is touched.

    Raises:
        RunError: If what was saved does not fit the settings.
    """
    try:
        lost = _restore(trainer, saved)
    except (RunError, FloatingPointError):
        raise
    except Exception as error:  # whatever is in a directory that somebody handed over
        raise RunError(
            f"what was saved does not fit the settings: {type(error).__name__}: {error}"
        ) from error
    changed = differing(saved.manifest.conditions, conditions())
    if changed:
        trainer.reporter.say(
            "continued, but the last bits may differ from a run that never stopped: "
            + "; ".join(changed)
        )
    if lost:
        trainer.reporter.say(
            f"environments {lost} began a fresh episode, and the run differs from one that never "
            f"stopped: {_why_lost(trainer, saved.manifest.state)}"
        )


def _why_lost(trainer: Trainer, state: dict[str, Any]) -> str:
    if trainer.config.restore_episodes == "no":
        return "--restore-episodes no"
    if not state.get("restorable", True):
        return "their actions were not kept, with --restore-episodes no"
    if len(state["episodes"]) != len(trainer.environments):
        return f"there were {len(state['episodes'])} environments"
    return "they did not come back to where they were"


def _restore(trainer: Trainer, saved: Saved) -> list[int]:
    manifest, state = saved.manifest, saved.manifest.state
    _check_spaces(trainer, state.get("spaces"))
    arrays = saved.arrays("episodes")
    episodes = {
        "episodes": [int(number) for number in state["episodes"]],
        "actions": [arrays[f"actions_{i}"] for i in range(len(state["episodes"]))],
        "restorable": state.get("restorable", True),
        "observations": arrays["observations"],
    }
    if "returns" in state:  # runs of format 1 have none
        episodes["returns"] = np.array(state["returns"], np.float64)
    owed = state["owed"]
    if not _FRACTION.fullmatch(owed) or Fraction(owed) > _most_owed(trainer, saved):
        raise ValueError(f"{owed} updates are owed, which no round leaves")
    with saved.networks_prefix() as prefix:
        trainer.agent.networks.restore(prefix)
    if trainer.agent.normalization is not None:
        trainer.agent.normalization.restore(state["normalization"])
    saved.restore_buffer(trainer.buffer)
    trainer.buffer.restore_state(state.get("replay", {}))  # runs of format 1 and 2 have none
    trainer.agent.remember(arrays)
    lost = trainer.environments.restore(episodes)
    trainer.agent.exploration.restore(state["random"]["exploration"])
    trainer.steps, trainer.updates = manifest.steps, manifest.updates
    trainer.debt.updates = Fraction(owed)
    began = np.isin(np.arange(len(trainer.environments)), lost)
    trainer.agent.begin_episodes(began)
    trainer.buffer.begin_episodes(began)
    trainer.buffer.random_state = state["random"]["sampling"]
    trainer.warmup.bit_generator.state = state["random"]["warmup"]
    # After an override scores may not be comparable: the search for the best policy begins anew.
    overridden_at = [manifest.steps] if trainer.run.overridden else trainer.run.overridden_at()
    if state["best"] and state["best"][0] > max(overridden_at, default=-1):
        step, score = state["best"]
        trainer.best = (int(step), float(score), saved.best_policy())
    trainer.summaries.restore(state["summaries"], lost)
    return lost


def _most_owed(trainer: Trainer, saved: Saved) -> Fraction:
    """The most updates that a round can leave: those that it owes, and less than a call."""
    kept = saved.manifest.config
    configs = [trainer.config, *([RunConfig(**kept["run"])] if kept else [])]
    return max(
        config.updates_per_call + Fraction(str(config.replay_ratio)) * config.num_envs
        for config in configs
    )


_FRACTION = re.compile(r"\d{1,15}(/\d{1,15})?")


def spaces_of(trainer: Trainer) -> dict[str, object]:
    """Writes the spaces of a run's environment as a checkpoint keeps them."""
    config = trainer.run.agent_config
    own = bool(config.actor or config.critic or config.models)
    return recorded_spaces(trainer.observations.space, trainer.actions, own_models=own)


def _check_spaces(trainer: Trainer, saved: dict[str, object] | None) -> None:
    """Refuses an environment that is not the one it was, unless that is what is overridden."""
    current = spaces_of(trainer)
    if saved is not None and saved != current and not trainer.run.overridden:
        raise RunError(
            f"the environment has other spaces than it had: {current}, not {saved}. Go on with the "
            "version that the run began with, or begin another --run-dir."
        )
