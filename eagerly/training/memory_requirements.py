"""Checks that a run fits into the available memory."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import psutil
import tensorflow as tf

from eagerly.agents import agent_class
from eagerly.agents.agent_settings import UNIFORM
from eagerly.agents.config import AgentConfig
from eagerly.buffers import Layout
from eagerly.buffers.sum_tree import SumTree
from eagerly.errors import RunError, UsageError
from eagerly.storage.config import RunConfig
from eagerly.storage.run import Run
from eagerly.workers.group_specs import PROCESSES

_PROCESS_BYTES = 2**26  # of a process whose environment has no simulator
_CGROUP = Path("/sys/fs/cgroup")
# For versions 2 and 1 of control groups: the files with a container's memory limit, usage and
# statistics, and the key of the inactive page cache in the statistics. Usage includes this cache,
# which the kernel reclaims under memory pressure.
_LIMITS = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    (
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
        "memory/memory.stat",
        "total_inactive_file",
    ),
)


def available_memory() -> int:
    """Returns the bytes that this process can still allocate, given its machine and container."""
    available = int(psutil.virtual_memory().available)
    for limit, used, statistics, files in _LIMITS:
        try:
            left = int((_CGROUP / limit).read_text()) - int((_CGROUP / used).read_text())
            lines = (_CGROUP / statistics).read_text().splitlines()
            left += int(dict(line.split() for line in lines).get(files, 0))
        except (OSError, ValueError):  # no limit, or no control group
            continue
        available = min(available, max(left, 0))
    return available


def check_memory(needed: int, what: str, advice: str) -> None:
    """Checks that enough memory is available.

    Args:
        needed: Required memory in bytes.
        what: The consumer of the memory, for the message.
        advice: How to need less memory, for the message.

    Raises:
        RunError: If `needed` exceeds the available memory. The message contains both numbers.
    """
    available = available_memory()
    if needed > available:
        raise RunError(
            f"{what} needs {gigabytes(needed)} of memory, {gigabytes(available)} available: "
            f"{advice}"
        )


def gigabytes(count: int) -> str:
    """Formats a number of bytes in GiB."""
    return f"{count / 2**30:.2f} GiB"


def check_networks_and_processes(run: Run, spaces: tuple[gymnasium.Space, gymnasium.Space]) -> None:
    """Checks that the networks and collector processes fit into memory.

    Raises:
        RunError: If they do not fit. The message contains the required and the available memory.
    """
    builder = agent_class(run.agent).Builder(run.agent_config, *spaces, seed=run.config.seed)
    size = tf.as_dtype(run.agent_config.variable_dtype).size
    # Networks, target networks, and Adam's two moments.
    needed = 4 * size * builder.least_parameters()
    check_memory(needed, "training networks with these --hidden-sizes", "reduce them")
    if run.config.collectors == PROCESSES and (count := run.config.num_collectors):
        what = f"a process for each of {count} --num-collectors"
        check_memory(count * _PROCESS_BYTES, what, "reduce their number")


def check_buffer(config: RunConfig, agent_config: AgentConfig, layout: Layout) -> None:
    """Checks that the replay buffer fits into memory and is large enough for the environments.

    Raises:
        RunError: If it is too large or too small. The message contains the required size.
    """
    rows = min(
        config.replay_capacity, (config.steps + config.steps_per_round) * agent_config.rows_per_step
    )
    what = f"a replay buffer of {rows} transitions with {layout.width} float32 values each"
    needed = layout.row_bytes * rows
    if agent_config.sampling != UNIFORM:
        needed += SumTree.bytes_of(rows)
        what += ", and with priorities,"
    check_memory(needed, what, "reduce --replay-capacity")
    least = layout.least_rows(config.num_envs)
    if config.replay_capacity < least:
        raise UsageError(
            f"replay_capacity must be at least {least} for {config.num_envs} environments with a "
            f"recurrent agent or image observations; got {config.replay_capacity}"
        )
