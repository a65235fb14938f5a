"""Initializes the policy of a run with that of another run."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from eagerly.agents.agent import Agent
from eagerly.errors import RunError, UsageError
from eagerly.networks.models import assign_weights
from eagerly.networks.moments import RunningMoments
from eagerly.networks.quantization_ranges import RANGES, WIDTH
from eagerly.policies.numpy_actor import NumpyActor, numpy_actor
from eagerly.policies.ranges import measured_ranges
from eagerly.policies.weights import named
from eagerly.settings import flag_name
from eagerly.spaces import text_of
from eagerly.spaces.serialization import restored_spaces
from eagerly.storage.checkpoint_reader import Checkpoint, required_checkpoint
from eagerly.storage.replayed import replayed_rows
from eagerly.storage.run import Run, open_run
from eagerly.storage.run_settings import format_setting

# Observations used to measure a policy's quantization ranges.
RANGE_ROWS = 10_000
_log = logging.getLogger(__name__)
# Settings that can change the actor without changing the shapes of its weights.
_SAME_SHAPES = (
    *("activation", "encoder_activation", "layer_norm", "memory", "attention_heads"),
    "normalization_floor",
)
# Settings that change the activation of critics or the scale of their values.
_OF_CRITICS = ("critic_activation", "normalize_rewards", "reward_scale")
_ACTOR_CRITIC = {"actor", "actor_target", "critic", "critic_target"}


def warm_start(run: Run, agent: Agent, spaces: dict[str, Any]) -> None:
    """Copies the policy of the run that `init_from` names to a new run's agent.

    The source is that run's best policy, or its latest if it has no best policy yet. Statistics for
    observation normalization are copied as well. The target networks of the policy's networks get
    the same weights. If the policy contains target networks, their online networks get the same
    weights, too. With `init_critics`, the critics, their targets and the statistics of rewards are
    copied as well, from the newest checkpoint. If critics share layers with the policy, or the
    agent has further networks, such as encoders, all networks are copied from there, also the
    policy. Optimizers and everything else keep their initial state.

    If only the new actor is quantized, its ranges are measured on the other run's replay buffer. If
    the spaces differ but have the same sizes, or the wrappers differ, a warning is logged.

    Args:
        run: The new run.
        agent: The agent of the new run.
        spaces: The spaces of the new run, as stored in checkpoints.

    Raises:
        RunError: If the directory is not a run with a checkpoint, or its networks are incompatible.
    """
    run_dir = run.config.init_from
    run.check_trusted("init_from")
    try:
        other = open_run(Path(run_dir), None, {}, trust=run.trusts_init_from)
        saved = required_checkpoint(other.path, with_replay=False)
    except RunError as error:
        raise UsageError(f"--init-from: {error}") from error
    mine, theirs = agent.config.flat(), other.agent_config.flat()
    copied = _copied(agent) if run.config.init_critics else []
    needed = dict.fromkeys(_SAME_SHAPES, "their actors must have the same architecture")
    if copied:
        needed |= dict.fromkeys(_OF_CRITICS, "it must be the same with --init-critics")
    for name, must in needed.items():
        if name in mine and name in theirs and mine[name] != theirs[name]:
            raise UsageError(
                f"--init-from: {flag_name(name)} is {theirs[name]} in {run_dir} and {mine[name]} "
                f"in this run: {must}"
            )
    try:
        found = saved.policies(other.last_override)
        copies_all = len(copied) == len(agent.modules.networks())
        weights, step = found["latest" if copies_all or "best" not in found else "best"]
        pairs = _compared(run, spaces, other, saved)
        initial = agent.policy_weights()
        ranges = {name: initial[name] for name in initial if name.startswith(RANGES)}
        if ranges.keys() - weights.keys():  # only the new actor is quantized
            weights = weights | _measured(other, saved, agent, weights, ranges)
        assign_weights(agent.acting, weights)
        statistics = saved.state("agent")["statistics"]["moments"]
        if agent.normalization is not None:
            actor, moments = agent.observations.actor.size, agent.normalization.moments
            _restore_moments(moments, actor, statistics["observations"])
        if copied:
            if agent.rewards.moments is not None:
                agent.rewards.moments.restore(statistics["rewards"])
            with saved.networks_prefix() as prefix:
                agent.checkpoint.read_groups(prefix, copied)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"--init-from: the networks of {run_dir} are incompatible with this run's: {error}"
        ) from error
    if not copies_all:
        _spread(agent)
    agent.refresh()
    settings = [other.settings(), run.settings()]
    for name in ("wrapper", "ignore_entries", "critic_entries"):
        pairs[flag_name(name)] = [format_setting(each.get(name)) for each in settings]
    for name, (there, here) in pairs.items():
        if there != here:
            _log.warning("%s and this run differ in %s: %s and %s", run_dir, name, there, here)
    _log.info("starts with the policy of %s from step %s", run_dir, step)


def _restore_moments(moments: RunningMoments, actor: int, saved: Mapping[str, Any]) -> None:
    """Restores the statistics of observations, without critic entries that the new run lacks."""
    if len(moments.mean) == actor:
        # The columns of the actor are the last ones.
        last = {name: saved[name][-actor:] for name in ("mean", "squares")}
        saved = {**saved, **last}
    moments.restore(saved)


def _copied(agent: Agent) -> list[str]:
    """Returns the networks to copy with `init_critics`: the critics, or all if they use others."""
    networks = agent.modules.networks()
    critics = [name for name in networks if name.startswith("critic")]
    acting = {id(variable.value) for variable in agent.acting.trainable_variables}
    used = (variable for name in critics for variable in networks[name].trainable_variables)
    if networks.keys() - _ACTOR_CRITIC or any(id(variable.value) in acting for variable in used):
        return list(networks)
    return critics


def _compared(
    run: Run, spaces: Mapping[str, Any], other: Run, saved: Checkpoint
) -> dict[str, list[str]]:
    """Describes the actor's observations and actions, in the other run and in this run.

    Raises:
        ValueError: If the actor's observations or actions have different sizes.
    """
    there = run.config.init_from
    layouts = [
        each.agent_config.spaces(*restored_spaces(document))
        for each, document in ((other, saved.manifest.spaces), (run, spaces))
    ]
    observations = [layout[0].actor for layout in layouts]
    actions = [layout[1] for layout in layouts]
    observed = [text_of(each.kept_space) for each in observations]
    acted = [text_of(each.space) for each in actions]
    first, second = ((each.size, [image.shape for image in each.images]) for each in observations)
    if first != second:
        raise ValueError(f"{there} observes {observed[0]}; this run observes {observed[1]}")
    counts = [(each.continuous, each.choices) for each in actions]
    if counts[0] != counts[1]:
        raise ValueError(f"{there} has actions {acted[0]}; this run has {acted[1]}")
    return {"observations": observed, "actions": acted}


def _spread(agent: Agent) -> None:
    """Copies the new weights from networks to their targets, and from targets to networks."""
    given = {id(variable.value) for variable in agent.acting.variables}
    pairs = [
        pair
        for module in agent.modules.values()
        if module.target is not None
        for pair in zip(module.network.variables, module.target.variables, strict=True)
    ]
    pairs += [(target, network) for network, target in pairs]
    while due := [(s, t) for s, t in pairs if id(s.value) in given and id(t.value) not in given]:
        for source, target in due:
            target.assign(source.value)
            given.add(id(target.value))


def _measured(
    other: Run,
    saved: Checkpoint,
    agent: Agent,
    weights: Mapping[str, np.ndarray],
    begun: Mapping[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """Measures the ranges of an unquantized policy on its run's replay buffer.

    Args:
        other: The policy's run.
        saved: The policy's checkpoint.
        agent: The agent to initialize.
        weights: The policy's weights.
        begun: The initial ranges, returned if there is no replay buffer.
    """
    restored = restored_spaces(saved.manifest.spaces)
    observations, actions = other.agent_config.spaces(*restored)
    try:
        rows = replayed_rows(other, observations, actions, RANGE_ROWS)
    except RunError:  # a run copied without its replay buffer is valid, too
        rows = np.zeros((0, observations.size))
    if not len(rows):
        _log.warning(
            "%s has no replay buffer to measure quantization ranges on: they start with the "
            "initial values of a new run, and activations outside them are clipped until the "
            "actor's first update",
            other.path,
        )
        return dict(begun)
    architecture = replace(cast(Any, agent.acting).architecture, quantized=False)
    actor = numpy_actor(architecture, named(weights))
    assert isinstance(actor, NumpyActor)  # quantized actors are not recurrent
    low, high = measured_ranges(actor.network, actor.scaled(rows))
    return {f"{RANGES}low": low, f"{RANGES}high": np.maximum(high, low + np.float32(WIDTH))}
