"""Prepares this process for an environment that moves in real time (setting `hardware`)."""

from __future__ import annotations

import ctypes
import gc
import math
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import numpy as np

from eagerly.agents.agent import Agent
from eagerly.buffers import Replay, Transition
from eagerly.errors import RunError, UsageError

# Seconds after which a thread that executes Python code is interrupted if another one waits
# (default: 0.005). The acting thread waits several times per step.
_SWITCH_INTERVAL = 0.0005


def compile_programs(agent: Agent, updates_per_call: int, updates: int = 0) -> None:
    """Compiles all programs that acting and training call, without changing the agent.

    Acts and trains on constant data, then restores everything that checkpoints contain. Later
    results therefore do not change by a bit. Tracing without a call would not suffice, because XLA
    compiles in the first call.

    Args:
        agent: A new agent, before its state is restored from a checkpoint and before other threads
            use it.
        updates_per_call: The argument `updates` of the later calls of `agent.train`, at least 1.
        updates: Number of updates in the checkpoint to restore, if it may not be a multiple of
            `updates_per_call`. It determines the intervals due in a call.

    Raises:
        RunError: If no temporary file can be written, or `updates_per_call` does not fit the agent.
    """
    learner, period = agent.learner, math.lcm(*agent.intervals)
    variables = [v for group in agent.checkpoint.groups.values() for v in group.values()]
    variables.append(agent.rewards.scale)
    saved = [(variable, variable.numpy()) for variable in variables]
    state = agent.state()
    learner.updates = updates
    try:
        learner.check_call(updates_per_call)
    except ValueError as error:
        raise UsageError(
            f"--updates-per-call: {error} (with --hardware, its default is --rollout-steps, at "
            "most 50)"
        ) from error
    try:
        actions = _act(agent)
        buffer = _constant_buffer(agent, actions)
        for call in range(period // math.gcd(period, updates_per_call)):
            learner.updates = updates + call * updates_per_call
            with suppress(FloatingPointError):  # the data is arbitrary: custom losses may overflow
                agent.train(buffer, updates_per_call)
        _act(agent)
        learner.graph()
    finally:
        for variable, value in saved:
            variable.assign(value)
        agent.restore(state)
    try:
        with tempfile.TemporaryDirectory() as folder:  # the first call takes twice the time
            agent.checkpoint.write(f"{folder}/networks")
    except OSError as error:
        raise RunError(f"the folder of temporary files cannot be used: {error}") from error


def _act(agent: Agent) -> np.ndarray:
    """Acts once and returns a random valid action `[1, A]`."""
    behavior, observation = agent.behavior(), np.ones((1, agent.observations.size), np.float32)
    for uniform in (False, True):
        actions = behavior.act(observation, uniform=uniform)
        behavior.observe(np.zeros(1), np.zeros(1, bool))
    agent.rollout_policy()
    return actions


def _constant_buffer(agent: Agent, actions: np.ndarray) -> Replay:
    """Returns a buffer with equal steps, enough for a batch."""
    config = agent.config
    steps = config.sequence_length + config.burn_in + 2
    buffer = agent.replay_buffer(max(2 * steps, agent.layout.least_rows(1)))
    zero, observation = np.zeros(1), np.ones((1, agent.observations.size), np.float32)
    for _ in range(steps):
        step = Transition(observation, actions, zero, zero + config.discount, observation)
        buffer.add(step, np.zeros(1, bool))
    return buffer


@contextmanager
def responsive() -> Iterator[None]:
    """Reduces the time for which other Python code delays the thread that acts.

    Switches between threads more often, and exempts all objects created so far from garbage
    collection, which stops all threads for about 0.1 s with TensorFlow's objects. Returns the
    memory that compilation freed to the system: a later call would do so, which took 30 ms.
    """
    interval = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL)
    gc.collect()
    gc.freeze()
    if hasattr(library := ctypes.CDLL(None), "malloc_trim"):  # glibc
        library.malloc_trim(0)
    try:
        yield
    finally:
        gc.unfreeze()
        sys.setswitchinterval(interval)
