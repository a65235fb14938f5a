"""Builds the components of a run from its settings."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import tensorflow as tf

from eagerly.agents import agent_class
from eagerly.agents.agent import Agent
from eagerly.agents.algorithm import algorithm_errors
from eagerly.buffers import Accumulator, Replay
from eagerly.environments.guard import GuardedEnvironment
from eagerly.environments.timing import ActionTiming, timed
from eagerly.environments.watchdog import Watchdog
from eagerly.errors import RunError, UsageError
from eagerly.importing import imported_for
from eagerly.state import Stateful
from eagerly.storage.checkpoint_reader import Checkpoint
from eagerly.storage.run import Run
from eagerly.storage.tracking import check_tracker
from eagerly.training.best_policy import BestPolicyTracker
from eagerly.training.collector import Collector
from eagerly.training.evaluation import single_blas_thread
from eagerly.training.first_environment import CHECKED, FirstEnvironment
from eagerly.training.goal_replay import make_hindsight
from eagerly.training.hardware import check_precision, set_device, set_threads
from eagerly.training.logged_data import load, make_buffer
from eagerly.training.memory_requirements import check_buffer, check_networks_and_processes
from eagerly.training.offline import OfflineCollector
from eagerly.training.policy_checkpoints import PolicyCheckpoints
from eagerly.training.real_time import compile_programs, responsive
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
        load_data: Adds the logged data to the buffer of a new run; None without data.
        collector: Collects rollouts. Its environments are not reset yet.
        budget: Decides when updates are made.
        policies: The evaluated policy and the best policy so far.
        summaries: Writes the curves.
        evaluation_env: The evaluation environment; None if the run is never evaluated.
        camera: Records videos; None if videos are disabled.
    """

    agent: Agent
    buffer: Replay
    load_data: Callable[[], None] | None
    collector: Collector | OfflineCollector
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
    watchdog = Watchdog(timeout, progress, limits_resets=not config.hardware)
    opened.callback(watchdog.close)
    run.check_trusted("collectors", "num_collectors", "track")
    check_tracker(config.track)
    set_device(config.device, run.agent_config.replicas)
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
    if not config.offline:
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
    with watchdog.calling(f"reading the goals of environment {first.name!r}", patience=100):
        accumulator, info_keys = make_hindsight(
            agent, first.with_goals(), first.name, seed=config.seed
        )
    buffer = make_buffer(run, agent)
    load_data = None
    if config.data:
        if info_keys:
            raise UsageError(
                f"hindsight replay in {first.name!r} needs info[{info_keys[0]!r}], which logged "
                "data does not contain: add --hindsight none"
            )
        load_data = partial(load, run, agent, buffer, accumulator)
    ratio, per_call = Fraction(str(config.replay_ratio)), config.updates_per_call
    budget = kept or (agent.Budget or UpdateBudget)(ratio, per_call)
    timing = None
    if config.hardware:
        with algorithm_errors(kind, "updating"):
            compile_programs(agent, per_call, newest.manifest.updates if newest else 0)
        opened.enter_context(responsive())
        timing = ActionTiming()
    if config.offline:
        collector: Collector | OfflineCollector = OfflineCollector(observations, actions)
    else:
        collector = _collector(
            run,
            agent,
            buffer,
            accumulator,
            info_keys,
            first,
            budget,
            repeats,
            watchdog,
            timing,
            opened,
        )
    if run.is_new and config.steps <= config.warmup_steps and not config.offline:
        _log.warning(
            f"all {config.steps} steps are random and nothing is learned: reduce --warmup-steps, "
            f"which is {config.warmup_steps} (preset {run.preset})"
        )
    return Assembly(
        agent,
        buffer,
        load_data,
        collector,
        budget,
        BestPolicyTracker(agent, kept),
        Summaries(config, timing),
        first.for_evaluation,
        camera,
    )


def _collector(
    run: Run,
    agent: Agent,
    buffer: Replay,
    accumulator: Accumulator,
    info_keys: Sequence[str],
    first: FirstEnvironment,
    budget: UpdateBudget,
    repeats: bool | None,
    watchdog: Watchdog,
    timing: ActionTiming | None,
    opened: ExitStack,
) -> Collector:
    """Creates the collector and its environments."""
    config, make = run.config, first.make_training()
    if timing:
        make = partial(timed, make, timing)
    if config.policy_lag:  # a background thread steps the environments
        watchdog = watchdog.another()
        opened.callback(watchdog.close)
    environments = Environments(
        make,
        config.num_envs,
        config.seed,
        group_size=config.group_size,
        acting=config.groups_act and agent.rollout_policy() is not None,
        collectors=config.collectors,
        num_collectors=config.num_collectors,
        allow_different=config.allow_different_collectors,
        watchdog=watchdog,
        timeout=config.environment_timeout_seconds,
        restorable=config.restore_episodes == "yes",
        repeats=repeats,
        info_keys=info_keys,
        # Whether the next round is random is known only after this one.
        never_waits=config.hardware and not budget.warmup_ends_with_episode,
    )
    opened.enter_context(closing(environments))
    try:
        return Collector(
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
