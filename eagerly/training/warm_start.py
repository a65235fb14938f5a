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
from eagerly.networks.quantization_ranges import RANGES, WIDTH
from eagerly.policies.numpy_actor import NumpyActor, numpy_actor
from eagerly.policies.ranges import measured_ranges
from eagerly.policies.weights import named
from eagerly.settings import flag_name
from eagerly.spaces import Actions
from eagerly.spaces.serialization import restored_spaces
from eagerly.storage.checkpoint_reader import Checkpoint, required_checkpoint
from eagerly.storage.replayed import replayed_rows
from eagerly.storage.run import Run, open_run

# Observations used to measure a policy's quantization ranges.
RANGE_ROWS = 10_000
_log = logging.getLogger(__name__)
# Settings that can change the actor without changing the shapes of its weights.
_SAME_SHAPES = ("activation", "encoder_activation", "layer_norm", "memory", "attention_heads")


def warm_start(run: Run, agent: Agent, spaces: dict[str, Any]) -> None:
    """Copies the policy of the run that `init_from` names to a new run's agent.

    The source is that run's best policy, or its latest if it has no best policy yet. Statistics for
    observation normalization are copied as well. The target networks of the policy's networks get
    the same weights. If the policy contains target networks, their online networks get the same
    weights, too. With `init_critics`, the critics and their targets are copied as well, from the
    newest checkpoint. Optimizers and everything else keep their initial state.

    If only the new actor is quantized, its ranges are measured on the other run's replay buffer. If
    the spaces differ but have the same sizes, a warning is logged.

    Args:
        run: The new run.
        agent: The agent of the new run.
        spaces: The spaces of the new run, as stored in checkpoints.

    Raises:
        RunError: If the directory is not a run with a checkpoint, or its actor is incompatible.
    """
    run_dir = run.config.init_from
    run.check_trusted("init_from")
    try:
        other = open_run(Path(run_dir), None, {}, trust=run.trusts_init_from)
        saved = required_checkpoint(other.path, with_replay=False)
    except RunError as error:
        raise UsageError(f"--init-from: {error}") from error
    mine, theirs = agent.config.flat(), other.agent_config.flat()
    for name in _SAME_SHAPES:
        if name in mine and name in theirs and mine[name] != theirs[name]:
            raise UsageError(
                f"--init-from: {flag_name(name)} is {theirs[name]} in {run_dir} and {mine[name]} "
                "in this run: their actors must have the same architecture"
            )
    try:
        found = saved.policies()
        weights, step = found.get("best", found["latest"])
        actions = Actions(restored_spaces(saved.manifest.spaces)[1])
        mine_too = agent.actions.continuous, agent.actions.choices
        if (actions.continuous, actions.choices) != mine_too:
            raise ValueError(f"its action space is {actions.space}")
        own = agent.policy_weights()
        ranges = {name: values for name, values in own.items() if name.startswith(RANGES)}
        if ranges.keys() - weights.keys():  # only the new actor is quantized
            weights = weights | _measured(other, saved, agent, weights, ranges)
        assign_weights(agent.acting, weights)
        if agent.normalization is not None:
            statistics = saved.state("agent")["statistics"]["moments"]
            agent.normalization.moments.restore(statistics["observations"])
        if run.config.init_critics:
            critics = [name for name in agent.modules.networks() if name.startswith("critic")]
            with saved.networks_prefix() as prefix:
                agent.checkpoint.read_groups(prefix, critics)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"--init-from: the networks of {run_dir} are incompatible with this run's: {error}"
        ) from error
    _spread(agent)
    agent.refresh()
    other_spaces = saved.manifest.spaces
    if other_spaces.keys() == spaces.keys() and other_spaces != spaces:
        _log.warning(
            "%s and this run have different spaces: %s and %s", run_dir, other_spaces, spaces
        )
    for name in ("ignore_entries", "critic_entries"):
        there, here = (repr(each.get(name, "")) for each in (theirs, mine))
        if there != here:
            flag = flag_name(name)
            _log.warning("%s and this run differ in %s: %s and %s", run_dir, flag, there, here)
    _log.info("starts with the policy of %s from step %s", run_dir, step)


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
