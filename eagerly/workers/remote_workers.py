"""Collectors in other processes: distributes the groups and detects lost collectors."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import cloudpickle

from eagerly.environments.group import Acts
from eagerly.environments.remote import STARTING
from eagerly.environments.silence import Silence
from eagerly.environments.worker_process import LostError, sendable
from eagerly.errors import RunError
from eagerly.policies.numpy_actor import RowPolicy
from eagerly.workers.worker import RemoteWorker, Request

_ADVICE = "or use --collectors here"  # in errors about objects that cannot be sent
_PATIENCE = 5.0  # seconds that closing waits for a rollout in progress
# Maps groups to a factory that creates their `RemoteWorker` in the process that calls it.
WorkerMaker = Callable[[Mapping[int, range]], Callable[[], RemoteWorker]]


def divided(numbers: range, parts: int) -> list[range]:
    """Divides a range into `parts` ranges whose lengths differ by at most 1."""
    cuts = [len(numbers) * part // parts for part in range(parts + 1)]
    return [numbers[first:end] for first, end in pairwise(cuts)]


class RemoteWorkers(ABC):
    """Collectors in other processes, each with some of the groups; see `Workers`.

    A collector that is not running yet, or was lost, is started by the next request to its groups.

    Args:
        make: Returns the factory of a collector's `RemoteWorker`.
        groups: Indices of each group's environments.
        count: Number of collectors.
        timeout: Seconds allowed for a step or reset; 0: unlimited. Startup may take this long per
            environment, plus `STARTING` seconds for the process itself. A collector that sends no
            heartbeat for longer than the timeout is lost.

    Attributes:
        count: Number of collectors.
    """

    def __init__(
        self, make: WorkerMaker, groups: Sequence[range], count: int, timeout: float
    ) -> None:
        self.count = count
        self._groups = divided(range(len(groups)), count)
        environments = [sum(len(groups[group]) for group in own) for own in self._groups]
        self._timeout, self._silences = timeout, dict[int, Silence]()
        self._patience = [timeout and STARTING + timeout * each for each in environments]
        self._contents = [
            sendable(make({group: groups[group] for group in own}), _ADVICE) for own in self._groups
        ]
        self._acting: Mapping[int, Acts] = {}
        self._prepared: set[int] = set()
        self._actors_there: dict[int, RowPolicy] = {}  # latest actor that each collector received
        self._actor: tuple[RowPolicy | None, Any] = None, None  # latest actor; its serialized form
        self._unanswered: set[int] = set()  # collectors with a pending request
        self._starting, self._closed = threading.Lock(), False

    def set_policies(self, policies: Mapping[int, Acts]) -> None:
        """Sets the policy of each group. A restarted group receives the policy's current state."""
        self._acting = policies
        self._prepared.clear()
        self._actors_there.clear()  # new policies have no actor yet

    def ask(
        self, requests: Mapping[int, Request], actor: RowPolicy | None = None
    ) -> dict[int, Any]:
        """Sends each collector the requests for its groups and waits for all results."""
        asked = {
            collector: {group: requests[group] for group in own if group in requests}
            for collector, own in enumerate(self._groups)
        }
        asked = {collector: own for collector, own in asked.items() if own}
        lost: dict[int, LostError] = {}
        for collector in self._unanswered & asked.keys():  # after an error in the previous call
            lost[collector] = LostError(f"collector {collector} had an unfinished request")
            self._forget(collector)
        self._unanswered |= asked.keys()

        def those(collectors: Iterable[int], what: Callable[[int], Any]) -> dict[int, Any]:
            found = {}
            for collector in collectors:
                if collector in lost:
                    continue
                try:
                    found[collector] = what(collector)
                except LostError as error:
                    lost[collector] = error
                    self._forget(collector)
            return found

        new = [collector for collector in asked if not self._is_there(collector)]
        those(new, self._start_unless_closed)
        those(new, self._started)
        those(asked, lambda collector: self._give(collector, asked[collector], actor))
        answers: dict[int, Any] = {}
        for found in those(asked, self._answer).values():
            answers |= found
        self._unanswered -= asked.keys()
        return answers | {group: why for each, why in lost.items() for group in asked[each]}

    def _start_unless_closed(self, collector: int) -> None:
        with self._starting:
            if self._closed:
                raise RunError(f"collector {collector} not started: collectors are being closed")
            self._silences[collector] = Silence(self._timeout)
            self._start(collector, self._contents[collector])

    def _give(
        self, collector: int, requests: Mapping[int, Request], actor: RowPolicy | None
    ) -> None:
        acting, given = None, None
        if self._acting and collector not in self._prepared:
            own = {group: self._acting[group] for group in self._groups[collector]}
            acting = self._sent(own)
            self._prepared.add(collector)
        if actor is not None and self._actors_there.get(collector) is not actor:
            if self._actor[0] is not actor:
                self._actor = actor, self._shared(self._sent(actor))
            given = self._actor[1]
            self._actors_there[collector] = actor
        self._send(collector, acting, given, requests)

    def _sent(self, what: Any) -> bytes:
        try:
            return cloudpickle.dumps(what)
        except Exception as error:  # pickling custom objects may raise anything
            raise RunError(
                f"the policy cannot be sent to another process ({error}): make it picklable, "
                f"{_ADVICE}"
            ) from error

    def _forget(self, collector: int) -> None:
        self._prepared.discard(collector)
        self._actors_there.pop(collector, None)
        self._drop(collector)

    def _not_made(self, collector: int) -> RunError:
        return RunError(
            f"collector {collector} did not create its environments within "
            f"{self._patience[collector]:g} seconds (--environment-timeout-seconds)"
        )

    def _shared(self, actor: bytes) -> Any:
        """Returns an actor in the form that is sent to every collector."""
        return actor

    @abstractmethod
    def _is_there(self, collector: int) -> bool:
        """Returns whether a collector is running."""

    @abstractmethod
    def _start(self, collector: int, content: bytes) -> None:
        """Starts a collector; `_started` waits for it."""

    @abstractmethod
    def _started(self, collector: int) -> None:
        """Waits until a collector has created its environments."""

    @abstractmethod
    def _send(
        self, collector: int, acting: bytes | None, actor: Any, requests: Mapping[int, Request]
    ) -> None:
        """Sends a collector the arguments of `RemoteWorker.take`."""

    @abstractmethod
    def _answer(self, collector: int) -> dict[int, Any]:
        """Waits for a collector's results, by group index."""

    @abstractmethod
    def _drop(self, collector: int) -> None:
        """Cleans up after a lost collector."""

    def interrupt(self) -> float | None:
        """Returns the seconds to wait for a rollout, since other processes cannot abort it."""
        return _PATIENCE

    def expect_stop(self, *, expected: bool) -> None:
        """Treats frozen collectors as lost within seconds. Restarted ones get the full timeout."""
        for silence in list(self._silences.values()):
            silence.is_short = expected

    def close(self) -> None:
        """Closes every environment and ends every collector."""
        with self._starting:
            self._closed = True
        self._end()

    @abstractmethod
    def _end(self) -> None:
        """Closes the environments and ends the collectors; called by `close`."""
