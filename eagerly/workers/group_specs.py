"""Which collectors there are, and opening them."""

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
    """Checks the setting `collectors`.

    Raises:
        ValueError: If it is none of what it may be.
    """
    if kind not in (HERE, PROCESSES, RAY) and not _ADDRESS.fullmatch(kind):
        raise ValueError(
            "collectors must be here, processes, ray, or ray:HOST:PORT with the address of a "
            f"cluster's head, such as ray:10.0.0.1:6379; got {kind!r}"
        )


@dataclass(frozen=True)
class GroupSpec:
    """How groups of environments are made.

    Attributes:
        make: Makes one environment.
        groups: The environments of each group.
        seed: Seed of the run.
        timeout: Seconds that a step or reset may take; 0: for ever.
        info_keys: What of `info` each step hands on.
    """

    make: Callable[[], gymnasium.Env[Any, Any]]
    groups: Sequence[range]
    seed: int
    timeout: float
    info_keys: tuple[str, ...]

    def here(self, watchdog: Watchdog | None) -> Worker:
        """Makes all groups in this process."""
        groups = dict(enumerate(self.groups))
        return Worker(self.make, groups, self.seed, watchdog=watchdog, info_keys=self.info_keys)

    def elsewhere(
        self, hung: Callable[[str], None], groups: Mapping[int, range]
    ) -> Callable[[], RemoteWorker]:
        """Returns what makes some groups in the process where it is called."""
        return partial(
            RemoteWorker, self.make, groups, self.seed, self.timeout, hung, self.info_keys
        )


def groups_of(num_envs: int, size: int) -> list[range]:
    """Divides environments into groups of a size; the last may have fewer."""
    every = range(num_envs)
    return [every[first : first + size] for first in every[::size]]


def stepped_groups(num_envs: int, kind: str, count: int) -> list[range]:
    """Divides environments that are only stepped into groups, one for each collector.

    Args:
        num_envs: How many there are.
        kind: Where they are, see `opened`.
        count: How many collectors were asked for; 0 for none in particular.
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
    """Opens collectors.

    Args:
        kind: Where: "here", "processes", "ray" or "ray:HOST:PORT".
        spec: How groups are made.
        count: How many collectors; 0: one for each group, at most as many as there are cores.
        watchdog: Watches environments in this process.
        allow_different: Whether collectors on other machines may have other versions.

    Returns:
        The collectors, and how many there are.

    Raises:
        RunError: If they cannot be had.
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
