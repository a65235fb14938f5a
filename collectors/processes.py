"""Collecting in processes of this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from eagerly.collectors.elsewhere import Elsewhere, HostMaker
from eagerly.collectors.host import Order
from eagerly.environments.remote import STARTING
from eagerly.environments.workers import Worker, close_all, message_of
from eagerly.errors import RunError


class Processes(Elsewhere):
    """Collectors that are processes of this machine.

    Args:
        make: Returns what builds a collector's host.
        groups: The environments of each group.
        count: How many collectors there are.
        timeout: Seconds that a collector may take to start, per environment, besides what the
            process itself takes; 0: for ever.
    """

    def __init__(
        self, make: HostMaker, groups: Sequence[range], count: int, *, timeout: float = 0.0
    ) -> None:
        super().__init__(make, groups, count, "or use --collectors here")
        self._workers: dict[int, Worker] = {}
        self._environments = [sum(len(groups[each]) for each in own) for own in self._groups]
        self._timeout = timeout

    def _is_there(self, collector: int) -> bool:
        return collector in self._workers

    def _start(self, collector: int, content: bytes) -> None:
        worker = Worker(content, f"the process of collector {collector}")
        self._workers[collector] = worker
        worker.send(message_of("take", None, {}, None))  # makes the environments

    def _started(self, collector: int) -> None:
        timeout = self._timeout and STARTING + self._timeout * self._environments[collector]
        try:
            self._workers[collector].receive(timeout)
        except TimeoutError as error:
            raise RunError(
                f"the environments of collector {collector} have not been made for {timeout:g} "
                "seconds (--environment-timeout-seconds)"
            ) from error

    def _send(
        self, collector: int, acting: bytes | None, policy: Any, orders: Mapping[int, Order]
    ) -> None:
        self._workers[collector].send(message_of("take", acting, orders, policy))

    def _answer(self, collector: int) -> dict[int, Any]:
        found: dict[int, Any] = self._workers[collector].receive()
        return found

    def _drop(self, collector: int) -> None:
        if worker := self._workers.pop(collector, None):
            worker.kill()

    def _end(self) -> None:
        close_all(list(self._workers.values()))


def cores() -> int:
    """Returns how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
