"""Collecting in other processes, wherever they are: who has which groups, and who was lost."""

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

_ADVICE = "or use --collectors here"  # where something cannot be sent
_PATIENCE = 5.0  # seconds that closing waits for a rollout that has begun
# Returns a callable that builds a host of these groups in the process where it is called.
WorkerMaker = Callable[[Mapping[int, range]], Callable[[], RemoteWorker]]


def divided(numbers: range, parts: int) -> list[range]:
    """Divides numbers into as many parts, whose lengths differ by 1 at most."""
    cuts = [len(numbers) * part // parts for part in range(parts + 1)]
    return [numbers[first:end] for first, end in pairwise(cuts)]


class RemoteWorkers(ABC):
    """Collectors that each have some of the groups, in processes; see `Workers`.

    One that is not there, at first or because it was lost, is started when its groups are asked.

    Args:
        make: Returns what builds a collector's host.
        groups: The environments of each group.
        count: How many collectors there are.
        timeout: Seconds that a step or reset may take; 0: for ever. A collector may take as many
            per environment to start, besides what the process itself takes; and is lost if it
            gives no sign of life for longer.

    Attributes:
        count: As given.
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
        self._actors_there: dict[int, RowPolicy] = {}  # that each has
        self._actor: tuple[RowPolicy | None, Any] = None, None  # the newest, and how it is sent
        self._unanswered: set[int] = set()  # that were asked, and of which nothing was told
        self._starting, self._closed = threading.Lock(), False

    def set_policies(self, policies: Mapping[int, Acts]) -> None:
        """Takes the policy of each group; one that is lost begins with it as it is then."""
        self._acting = policies
        self._prepared.clear()
        self._actors_there.clear()  # new policies have no actor yet

    def ask(
        self, requests: Mapping[int, Request], actor: RowPolicy | None = None
    ) -> dict[int, Any]:
        """Asks every collector what concerns its groups, and waits for all of them."""
        asked = {
            collector: {group: requests[group] for group in own if group in requests}
            for collector, own in enumerate(self._groups)
        }
        asked = {collector: own for collector, own in asked.items() if own}
        lost: dict[int, LostError] = {}
        for collector in self._unanswered & asked.keys():  # the call before raised an error
            lost[collector] = LostError(f"collector {collector} was asked, and not waited for")
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
                raise RunError(f"collector {collector} is not started: collectors are being closed")
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
        except Exception as error:  # whatever the objects say that it holds
            raise RunError(
                f"the policy cannot be sent to another process ({error}): {_ADVICE}"
            ) from error

    def _forget(self, collector: int) -> None:
        self._prepared.discard(collector)
        self._actors_there.pop(collector, None)
        self._drop(collector)

    def _not_made(self, collector: int) -> RunError:
        """Returns the error of a collector whose environments take too long to be made."""
        return RunError(
            f"the environments of collector {collector} have not been made for "
            f"{self._patience[collector]:g} seconds (--environment-timeout-seconds)"
        )

    def _shared(self, actor: bytes) -> Any:
        """Returns what of an actor is sent to every collector."""
        return actor

    @abstractmethod
    def _is_there(self, collector: int) -> bool:
        """Says whether a collector is there."""

    @abstractmethod
    def _start(self, collector: int, content: bytes) -> None:
        """Starts a collector; `_started` waits for it."""

    @abstractmethod
    def _started(self, collector: int) -> None:
        """Waits until a collector has made its environments."""

    @abstractmethod
    def _send(
        self, collector: int, acting: bytes | None, actor: Any, requests: Mapping[int, Request]
    ) -> None:
        """Asks what `RemoteWorker.take` takes."""

    @abstractmethod
    def _answer(self, collector: int) -> dict[int, Any]:
        """Waits for the answer."""

    @abstractmethod
    def _drop(self, collector: int) -> None:
        """Clears away what is left of a collector that was lost."""

    def interrupt(self) -> float | None:
        """Says how long to wait for rollouts: no message reaches a process that is busy."""
        return _PATIENCE

    def expect_stop(self) -> None:
        """Counts collectors that are frozen as lost within seconds, but no collector twice."""
        for silence in list(self._silences.values()):
            silence.shorten()

    def close(self) -> None:
        """Closes every environment and ends every collector."""
        with self._starting:
            self._closed = True
        self._end()

    @abstractmethod
    def _end(self) -> None:
        """Does what `close` says."""
