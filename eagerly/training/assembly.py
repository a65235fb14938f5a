"""Builds the components of a run from its settings."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from fractions import Fraction

import tensorflow as tf

from eagerly.agents import agent_class
from eagerly.agents.agent import Agent
from eagerly.agents.algorithm import algorithm_errors
from eagerly.buffers import Buffer
from eagerly.environments.guard import GuardedEnvironment
from eagerly.environments.watchdog import Watchdog
from eagerly.errors import RunError, UsageError
from eagerly.importing import imported_for
from eagerly.seeding import Stream, seed_sequence
from eagerly.state import Stateful
from eagerly.storage.checkpoint_reader import Checkpoint
from eagerly.storage.config import RunConfig
from eagerly.storage.run import Run
from eagerly.storage.tracking import check_tracker
from eagerly.training.best_policy import BestPolicyTracker
from eagerly.training.collector import Collector
from eagerly.training.evaluation import single_blas_thread
from eagerly.training.first_environment import CHECKED, FirstEnvironment
from eagerly.training.goal_replay import make_hindsight
from eagerly.training.hardware import check_precision, set_device, set_threads
from eagerly.training.memory_requirements import (
    available_memory,
    check_buffer,
    check_networks_and_processes,
    gigabytes,
)
from eagerly.training.policy_checkpoints import PolicyCheckpoints
from eagerly.training.summaries import Summaries
from eagerly.training.update_budget import UpdateBudget
from eagerly.training.video import Camera
from eagerly.workers.environment_groups import Environments

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Assembly:
    """The components of a run.

    Attributes:
        agent: The agent.
        buffer: The replay buffer, empty.
        collector: Collects rollouts. Its environments are not reset yet.
        budget: Decides when updates are made.
        policies: The evaluated policy and the best policy so far.
        summaries: Writes the curves.
        evaluation_env: The evaluation environment; None if the run is never evaluated.
        camera: Records videos; None if videos are disabled.
    """

    agent: Agent
    buffer: Buffer
    collector: Collector
    budget: UpdateBudget
    policies: BestPolicyTracker
    summaries: Summaries
    evaluation_env: GuardedEnvironment | None
    camera: Camera | None

    def components(self) -> dict[str, Stateful]:
        """Returns the stateful components, in the order in which they are restored."""
        return {
            "buffer": self.buffer,
            "agent": self.agent,
            "budget": self.budget,
            "policies": self.policies,
            "summaries": self.summaries,
            "collector": self.collector,
        }


def assemble(
    run: Run, newest: Checkpoint | None, progress: Callable[[], str], opened: ExitStack
) -> Assembly:
    """Builds the components of a run, without writing to its directory.

    Args:
        run: The run.
        newest: Its newest intact checkpoint, if any.
        progress: Returns the progress of the run as text, for the message about a hanging
            environment.
        opened: Receives the resources that must be closed.

    Raises:
        RunError: If the environment is not supported, the run does not fit into memory, or a
            setting needs the user's consent. Also if the code of a custom algorithm fails.
    """
    config, timeout = run.config, run.config.environment_timeout_seconds
    # Keep this limit until `opened` is closed, because a background thread may be acting.
    opened.enter_context(single_blas_thread())
    watchdog = Watchdog(timeout, progress)
    opened.callback(watchdog.close)
    run.check_trusted("collectors", "num_collectors", "track")
    check_tracker(config.track)
    set_device(config.device)
    set_threads(config.intra_op_threads, config.inter_op_threads)
    check_precision(run.agent_config.precision, run.agent_config.mode)
    first = opened.enter_context(closing(FirstEnvironment(run, watchdog)))
    spaces, observations, actions = first.spaces, first.observations, first.actions
    # The newest checkpoint contains the result of the check, unless the environment has changed
    # since. The change may precede this process: a killed run may not have saved a checkpoint.
    changed = run.changes(newest.manifest.config).keys() if newest else {"env"}
    repeats = first.check() if config.check_env and CHECKED & changed else None
    camera = None
    if config.video_every_steps:
        make = run.evaluation_environment()
        camera = opened.enter_context(closing(Camera(make, timeout=timeout)))
    check_networks_and_processes(run, spaces)
    check_buffer(config, run.agent_config, run.agent_config.layout(observations, actions))
    try:
        kind = agent_class(run.agent)
        with imported_for(run.agent_module), algorithm_errors(kind, "creating"):
            agent = kind(*spaces, run.agent_config, seed=config.seed)
            kept = PolicyCheckpoints(agent, config) if config.policy_checkpoints else None
    except (MemoryError, tf.errors.ResourceExhaustedError) as error:
        raise RunError(f"the networks do not fit into memory: {error}") from error
    except ValueError as error:  # raised by a custom model
        raise UsageError(str(error)) from error
    if (
        observations.images
        and run.agent_config.mode == "xla"
        and not tf.config.list_logical_devices("GPU")
    ):
        _log.warning(
            "XLA convolutions are slow on a CPU: --mode graph takes a fraction of the time"
        )
    if kept and agent.Budget is not None:
        raise UsageError(
            f"{run.agent} has its own update schedule, which is incompatible with "
            "--policy-checkpoints (updates at the end of an episode): omit --policy-checkpoints"
        )
    buffer = _buffer(config, agent)
    with watchdog.calling(f"reading the goals of environment {first.name!r}", patience=100):
        accumulator, info_keys = make_hindsight(
            agent, first.with_goals(), first.name, seed=config.seed
        )
    if config.policy_lag:  # a background thread steps the environments
        watchdog = watchdog.another()
        opened.callback(watchdog.close)
    environments = Environments(
        first.make_training(),
        config.num_envs,
        config.seed,
        group_size=config.group_size,
        acting=config.groups_act and agent.rollout_policy() is not None,
        collectors=config.collectors,
        num_collectors=config.num_collectors,
        allow_different=config.allow_different_collectors,
        watchdog=watchdog,
        timeout=timeout,
        restorable=config.restore_episodes == "yes",
        repeats=repeats,
        info_keys=info_keys,
    )
    opened.enter_context(closing(environments))
    ratio, per_call = Fraction(str(config.replay_ratio)), config.updates_per_call
    budget = kept or (agent.Budget or UpdateBudget)(ratio, per_call)
    try:
        collector = Collector(
            agent,
            environments,
            buffer,
            warmup_steps=config.warmup_steps,
            warmup_ends_with_episode=budget.warmup_ends_with_episode,
            rollout_steps=config.rollout_steps,
            policy_lag=config.policy_lag,
            accumulator=accumulator,
        )
    except ValueError as error:  # an incompatible accumulator or policy lag
        raise UsageError(str(error)) from error
    if run.is_new and config.steps <= config.warmup_steps:
        _log.warning(
            f"all {config.steps} steps are random and nothing is learned: reduce --warmup-steps, "
            f"which is {config.warmup_steps} (preset {run.preset})"
        )
    return Assembly(
        agent,
        buffer,
        collector,
        budget,
        BestPolicyTracker(agent, kept),
        Summaries(config),
        first.for_evaluation,
        camera,
    )


def _buffer(config: RunConfig, agent: Agent) -> Buffer:
    """Creates the replay buffer. Memory pages are committed only as it fills."""
    sampling = seed_sequence(config.seed, Stream.SAMPLING)
    try:
        buffer = agent.replay_buffer(config.replay_capacity, seed=sampling)
    except TypeError as error:  # the buffer does not support the sampler
        raise UsageError(str(error)) from error
    except (MemoryError, ValueError) as error:  # more than the system can allocate
        raise RunError(
            f"cannot allocate replay_capacity {config.replay_capacity}: {error}; "
            f"{gigabytes(available_memory())} available: reduce --replay-capacity"
        ) from error
    if len(buffer):  # a resumed run would add them twice
        raise UsageError(
            f"{type(agent).__name__}.replay_buffer must return an empty buffer; got {len(buffer)} "
            "rows: add them in a callback's on_begin, when training.steps is 0"
        )
    return buffer
