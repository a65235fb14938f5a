"""Collectors in processes on this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from eagerly.environments.worker_process import WorkerProcess, close_all, message_of
from eagerly.workers.remote_workers import RemoteWorkers, WorkerMaker
from eagerly.workers.worker import Request


class ProcessWorkers(RemoteWorkers):
    """Collectors that run as processes on this machine.

    Args:
        make: Returns the factory of a collector's `RemoteWorker`.
        groups: Indices of each group's environments.
        count: Number of collectors.
        timeout: Seconds allowed for a step or reset, see `RemoteWorkers`; 0: unlimited.
    """

    def __init__(
        self, make: WorkerMaker, groups: Sequence[range], count: int, *, timeout: float = 0.0
    ) -> None:
        super().__init__(make, groups, count, timeout)
        self._workers: dict[int, WorkerProcess] = {}

    def _is_there(self, collector: int) -> bool:
        return collector in self._workers

    def _start(self, collector: int, content: bytes) -> None:
        silence = self._silences[collector]
        worker = WorkerProcess(content, f"collector process {collector}", silence)
        self._workers[collector] = worker
        worker.send(message_of("take", None, {}, None))  # creates the environments

    def _started(self, collector: int) -> None:
        try:
            self._workers[collector].receive(self._patience[collector])
        except TimeoutError as error:
            raise self._not_made(collector) from error

    def _send(
        self, collector: int, acting: bytes | None, actor: Any, requests: Mapping[int, Request]
    ) -> None:
        self._workers[collector].send(message_of("take", acting, requests, actor))

    def _answer(self, collector: int) -> dict[int, Any]:
        found: dict[int, Any] = self._workers[collector].receive()
        return found

    def _drop(self, collector: int) -> None:
        if worker := self._workers.pop(collector, None):
            worker.kill()

    def _end(self) -> None:
        close_all(list(self._workers.values()))


def cores() -> int:
    """Returns the number of cores available to this process."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
