"""Collectors on an existing Ray cluster, or on one that is started on this machine."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from queue import SimpleQueue
from typing import Any

from eagerly.environments.remote import STARTING
from eagerly.environments.silence import TICK
from eagerly.environments.worker_process import LostError, WorkerLoop, failure, message_of, value_of
from eagerly.errors import RunError, UsageError
from eagerly.workers.local_cluster import LocalCluster
from eagerly.workers.process_workers import cores
from eagerly.workers.remote_workers import RemoteWorkers, WorkerMaker
from eagerly.workers.versions import differences, surroundings
from eagerly.workers.worker import Request

_log = logging.getLogger(__name__)
_CONNECTING = 10.0  # seconds allowed for the head node to answer
_BETWEEN = 0.2  # seconds between checks for a restarted actor
_CLOSING = 5.0  # seconds allowed for closing environments


class _UnavailableError(LostError):
    """An actor does not answer, and Ray is about to restart it."""


class CollectorActor:
    """A Ray actor that executes messages for a collector's groups.

    If an actor's process or node is lost, Ray silently restarts the actor, even between two
    messages. Messages are numbered, so that a restarted actor rejects messages for its predecessor.
    Environments run in a separate thread, so that an answer can be sent even if one of them hangs.

    Args:
        content: The factory of the collector's `RemoteWorker`, serialized with cloudpickle.
    """

    def __init__(self, content: bytes) -> None:
        self._content, self._answered = content, -1  # -1 rejects all messages before `begin`
        self._served, self._thread = WorkerLoop(content), ThreadPoolExecutor(1, "environments")

    def begin(self) -> dict[str, str]:
        """Resets the actor and returns the versions on which its results depend."""
        self.close()
        self._served, self._answered = WorkerLoop(self._content), 0
        return surroundings()

    def answer(self, number: int, message: bytes, *more: Any) -> bytes | None:
        """Executes a message, see `WorkerLoop`; returns None if its number is out of order."""
        if number != self._answered:
            return None
        self._answered += 1
        self._thread.submit(self._answer, message, more)
        return _answers.get()

    def _answer(self, message: bytes, more: tuple[Any, ...]) -> None:
        _answers.put(self._served.answer(message, *more))

    def close(self) -> None:
        """Closes the environments."""
        self._thread.submit(self._served.close).result()

    def give_sign(self) -> None:
        """Returns at once, even while environments are busy: its return is a heartbeat."""


_answers: SimpleQueue[bytes] = SimpleQueue()  # in an actor's process, holds its next answer


def answer_and_end_actor(what: str) -> None:
    """Raises a `RunError` in the trainer and ends this process."""
    _answers.put(failure(what))
    time.sleep(_CLOSING)  # gives Ray time to send the answer
    os._exit(1)


class RayWorkers(RemoteWorkers):
    """Collectors that run as actors on a Ray cluster.

    Args:
        make: Returns the factory of a collector's `RemoteWorker`.
        groups: Indices of each group's environments.
        count: Number of collectors; 0: one per group, limited by the cluster's number of cores.
        address: HOST:PORT of the cluster's head node; "" uses the cluster that this process has
            already joined, or starts one on this machine.
        timeout: Seconds allowed for a step or reset, see `RemoteWorkers`; 0: unlimited.
        allow_different: Whether collectors may have different versions or instruction sets.

    Raises:
        RunError: If Ray is not installed or the cluster cannot be started or joined.
    """

    def __init__(
        self,
        make: WorkerMaker,
        groups: Sequence[range],
        count: int,
        *,
        address: str = "",
        timeout: float = 0.0,
        allow_different: bool = False,
    ) -> None:
        self._ray, self._allow_different = _ray(), allow_different
        self._joined, self._local = not self._ray.is_initialized(), None
        if not self._joined:
            _check_joined(self._ray, address)
        elif address:
            _join(self._ray, address)
        else:
            self._local = _started(self._ray, count or min(len(groups), cores()))
        try:
            there = int(self._ray.cluster_resources().get("CPU", 1))
            count = count or max(1, min(len(groups), there))
            super().__init__(make, groups, count, timeout)
        except BaseException:
            self._leave()
            raise
        # With max_concurrency=2, an actor has a second thread, which answers heartbeats.
        remote = self._ray.remote(num_cpus=1, max_restarts=-1, max_concurrency=2)
        self._class = remote(CollectorActor)
        self._actors: dict[int, Any] = {}
        self._there: set[int] = set()
        self._asked: dict[int, Any] = {}
        self._sent_messages: dict[int, int] = {}

    def _is_there(self, collector: int) -> bool:
        return collector in self._there

    def _start(self, collector: int, content: bytes) -> None:
        if collector not in self._actors:
            self._actors[collector] = self._class.remote(content)
        self._ask_to_begin(collector)

    def _ask_to_begin(self, collector: int) -> None:
        self._asked[collector] = self._actors[collector].begin.remote()
        self._sent_messages[collector] = 0

    def _started(self, collector: int) -> None:
        deadline = time.monotonic() + STARTING
        while True:
            try:
                found = self._got(collector, self._patience[collector])
                break
            except TimeoutError as error:
                free = self._ray.cluster_resources().get("CPU", 0)
                raise RunError(
                    f"collector {collector} did not start within {self._patience[collector]:g} "
                    f"seconds: each of the {self.count} --num-collectors requires a core, and the "
                    f"cluster has {free:g}"
                ) from error
            except _UnavailableError:  # Ray has not yet noticed the loss of the node
                if time.monotonic() > deadline:
                    raise
                time.sleep(_BETWEEN)
                self._ask_to_begin(collector)
        if differs := differences(found, _here()):
            if not self._allow_different:
                raise RunError(
                    f"collector {collector} differs from this machine: {differs}. Install the same "
                    "versions there, or pass --allow-different-collectors: the results then depend "
                    "on which collector ran which environments"
                )
            _log.warning("collector %s differs from this machine: %s", collector, differs)
        self._send(collector, None, None, {})  # creates the environments
        self._answer(collector)
        self._there.add(collector)

    def _shared(self, actor: bytes) -> Any:
        return self._ray.put(actor)

    def _send(
        self, collector: int, acting: bytes | None, actor: Any, requests: Mapping[int, Request]
    ) -> None:
        number = self._sent_messages[collector]
        self._sent_messages[collector] += 1
        message = message_of("take", acting, requests)
        self._asked[collector] = self._actors[collector].answer.remote(number, message, actor)

    def _answer(self, collector: int) -> dict[int, Any]:
        timeout = self._patience[collector]
        if collector in self._there:
            timeout = 0.0
            self._wait(collector)
        try:
            answer = self._got(collector, timeout)
        except TimeoutError as error:
            raise self._not_made(collector) from error
        if answer is None:
            raise LostError(f"collector {collector} was restarted by Ray")
        found: dict[int, Any] = value_of(answer)
        return found

    def _wait(self, collector: int) -> None:
        """Waits until the answer to the last message, or an error, has arrived.

        Raises:
            LostError: If the actor is frozen.
        """
        asked, actor = self._asked[collector], self._actors[collector]
        silence = self._silences[collector]
        sign = None
        while not self._is_ready(asked, TICK):
            if sign is None or self._is_ready(sign, 0.0):
                silence.end()
                sign = actor.give_sign.remote()
            elif silence.tick():
                self._ray.kill(actor, no_restart=False)
                raise LostError(
                    f"collector {collector} has sent no heartbeat for {silence.seconds:g} seconds"
                )

    def _is_ready(self, reference: Any, timeout: float) -> bool:
        return bool(self._ray.wait([reference], timeout=timeout)[0])

    def _got(self, collector: int, timeout: float) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(self._asked[collector], timeout=timeout or None)
        except errors.GetTimeoutError as error:
            raise TimeoutError from error
        except errors.RayTaskError as error:  # environment errors arrive as answers
            raise RunError(f"collector {collector} failed: {error}") from error
        except errors.RayError as error:
            is_dead = not isinstance(error, errors.ActorUnavailableError)
            raise (LostError if is_dead else _UnavailableError)(
                f"collector {collector} died ({_short(error)})"
            ) from error

    def _drop(self, collector: int) -> None:
        if collector in self._there:  # Ray restarts the actor
            self._there.discard(collector)
        elif actor := self._actors.pop(collector, None):
            self._ray.kill(actor)

    def _end(self) -> None:
        try:
            closing = [self._actors[each].close.remote() for each in list(self._there)]
            if closing:
                self._ray.wait(closing, num_returns=len(closing), timeout=_CLOSING)
            for actor in list(self._actors.values()):
                self._ray.kill(actor)
        finally:
            self._leave()

    def _leave(self) -> None:
        if self._local is not None:
            self._local.close()
        elif self._joined:
            self._ray.shutdown()


# Environment variables that Ray reads on import and startup; existing values are kept.
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_py_gcs_connect_timeout_s": f"{_CONNECTING:g}",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


def _ray() -> Any:
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise UsageError(
            f"--collectors ray requires Ray, which cannot be imported ({error}): "
            "pip install 'eagerly[ray]'"
        ) from error
    return ray


def _check_joined(ray: Any, address: str) -> None:
    """Raises `RunError` if this process has joined a cluster other than that at `address`."""
    joined = ray.get_runtime_context().gcs_address
    if address and _resolved(address) != _resolved(joined):
        raise UsageError(
            f"--collectors ray:{address} is not the Ray cluster at {joined}, which this process "
            "has joined: use --collectors ray, or leave that cluster with ray.shutdown()"
        )


def _resolved(address: str) -> tuple[str, str]:
    host, _, port = address.rpartition(":")
    with suppress(OSError):
        host = socket.gethostbyname(host)
    return host, port


def _started(ray: Any, num_cpus: int) -> LocalCluster:
    """Starts a cluster on this machine."""
    try:
        return LocalCluster(ray, num_cpus)
    except RunError:
        raise
    except Exception as error:  # Ray raises many exception types
        raise RunError(f"cannot start a Ray cluster: {_short(error)}") from error


def _join(ray: Any, address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECTING).close()
        # Ray itself would wait forever for a port that accepts connections but never answers.
        ray._raylet.GcsClient(address=address)
    except (OSError, OverflowError, ray.exceptions.RpcError) as error:
        raise RunError(
            f"no Ray cluster is reachable at {address}: {_short(error)}. Start its head node with "
            f"`ray start --head --port={port}`"
        ) from error
    except Exception as error:  # Ray raises many exception types
        raise _not_joined(address, error) from error
    try:
        ray.init(address=address, logging_level=logging.ERROR)
    except Exception as error:
        raise _not_joined(address, error) from error


def _not_joined(address: str, error: Exception) -> RunError:
    return RunError(
        f"cannot join the Ray cluster at {address}: {_short(error)} (it may require a token: "
        'see "Train on several machines: a Ray cluster" in the documentation)'
    )


def _short(error: Exception) -> str:
    """Returns the first and last lines of an error message, without any traceback in between."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ... ".join(line[:300] for line in dict.fromkeys([*lines[:1], *lines[-1:]]))


@cache
def _here() -> dict[str, str]:
    return surroundings()
