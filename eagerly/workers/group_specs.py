"""Creates the collectors selected by the setting `collectors`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium

from eagerly.environments.watchdog import Watchdog
from eagerly.environments.worker_process import answer_and_end
from eagerly.workers.process_workers import ProcessWorkers, cores
from eagerly.workers.remote_workers import RemoteWorkers, divided
from eagerly.workers.worker import RemoteWorker, Worker

HERE, PROCESSES, RAY = "here", "processes", "ray"
_ADDRESS = re.compile(r"ray:(?P<address>(\[[0-9a-fA-F:]+\]|[^:/\s\[\]]+):\d{1,5})")


def check_collectors(kind: str) -> None:
    """Validates the setting `collectors`.

    Raises:
        ValueError: If the value is invalid.
    """
    if kind not in (HERE, PROCESSES, RAY) and not _ADDRESS.fullmatch(kind):
        raise ValueError(
            "collectors must be here, processes, ray, or ray:HOST:PORT with the address of the "
            f"cluster's head node, such as ray:10.0.0.1:6379; got {kind!r}"
        )


@dataclass(frozen=True)
class GroupSpec:
    """Everything needed to create groups of environments.

    Attributes:
        make: Creates the environment with a given index.
        groups: Indices of each group's environments.
        seed: Seed of the run.
        timeout: Seconds allowed for a step or reset; 0: unlimited.
        info_keys: Entries of `info` kept for each step.
    """

    make: Callable[[int], gymnasium.Env[Any, Any]]
    groups: Sequence[range]
    seed: int
    timeout: float
    info_keys: tuple[str, ...]

    def here(self, watchdog: Watchdog | None) -> Worker:
        """Creates all groups in this process."""
        groups = dict(enumerate(self.groups))
        return Worker(self.make, groups, self.seed, watchdog=watchdog, info_keys=self.info_keys)

    def elsewhere(
        self, hung: Callable[[str], None], groups: Mapping[int, range]
    ) -> Callable[[], RemoteWorker]:
        """Returns a factory that creates the given groups in the process that calls it."""
        return partial(
            RemoteWorker, self.make, groups, self.seed, self.timeout, hung, self.info_keys
        )


def groups_of(num_envs: int, size: int) -> list[range]:
    """Divides environments into groups of a given size; the last may be smaller."""
    every = range(num_envs)
    return [every[first : first + size] for first in every[::size]]


def stepped_groups(num_envs: int, kind: str, count: int) -> list[range]:
    """Divides environments into one group per collector, if groups do not choose actions.

    Args:
        num_envs: Number of environments.
        kind: Where the environments run, see `make_workers`.
        count: Requested number of collectors. 0: one per core for "processes", else one per
            environment.
    """
    if kind == HERE:
        count = 1
    elif not count:
        count = cores() if kind == PROCESSES else num_envs
    return divided(range(num_envs), min(count, num_envs))


def make_workers(
    kind: str,
    spec: GroupSpec,
    count: int,
    watchdog: Watchdog | None,
    *,
    allow_different: bool = False,
) -> tuple[Worker | RemoteWorkers, int]:
    """Creates the collectors.

    Args:
        kind: Where the environments run: "here", "processes", "ray" or "ray:HOST:PORT".
        spec: The groups to create.
        count: Number of collectors; 0: one per group, limited by the number of cores.
        watchdog: Monitors environments in this process.
        allow_different: Whether collectors on other machines may have different versions.

    Returns:
        The collectors and their number.

    Raises:
        ValueError: If `kind` is invalid.
        RunError: If the collectors cannot be created.
    """
    check_collectors(kind)
    groups = spec.groups
    count = min(count, len(groups))
    if kind == HERE:
        return spec.here(watchdog), 1
    if kind == PROCESSES:
        count = count or min(cores(), len(groups))
        elsewhere = partial(spec.elsewhere, answer_and_end)
        return ProcessWorkers(elsewhere, groups, count, timeout=spec.timeout), count
    from eagerly.workers.ray_workers import RayWorkers, answer_and_end_actor

    address = kind.partition(":")[2]
    on_ray = RayWorkers(
        partial(spec.elsewhere, answer_and_end_actor),
        groups,
        count,
        address=address,
        timeout=spec.timeout,
        allow_different=allow_different,
    )
    return on_ray, on_ray.count
