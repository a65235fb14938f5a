"""Rollouts in a background thread: at most one runs, and others follow it or wait to be taken."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

from eagerly.environments.group import Rollout
from eagerly.errors import InterruptedRolloutError
from eagerly.policies.numpy_actor import RowPolicy

_POLL = 0.2  # seconds between two checks whether waiting must be interrupted
_MOST_AHEAD = 10  # rollouts that are running or not yet taken, with `never_waits`


class Begun(NamedTuple):
    """A rollout in a queue.

    Attributes:
        future: Its result.
        actor: Its actor.
        kwargs: JSON of the changed keyword arguments of episodes that it begins.
    """

    future: Future[Any]
    actor: RowPolicy | None
    kwargs: str


class RolloutQueue:
    """Runs rollouts in a thread, one after the other.

    Args:
        run: Runs a rollout with an actor, T, the number of random steps, and the keyword arguments
            of episodes that it begins; returns one result per group.
        explorations: Returns the exploration state of each group.
        abort: Called in the thread if a rollout fails. Rollouts that follow must fail, too.
        never_waits: Whether a rollout is followed by another one with the same actor and keyword
            arguments, if none has been started when it ends. At most 10 are ahead of `take`.
    """

    def __init__(
        self,
        run: Callable[[RowPolicy | None, int, int, str], list[Rollout]],
        explorations: Callable[[], list[Any]],
        abort: Callable[[], object],
        *,
        never_waits: bool,
    ) -> None:
        self._run, self._explorations, self._abort = run, explorations, abort
        self._never_waits = never_waits
        self._thread: ThreadPoolExecutor | None = None
        self._begun: deque[Begun] = deque()
        self._lock = threading.Lock()  # guards `_begun`
        self._before: list[Any] = []  # exploration states before the first rollout

    @property
    def first(self) -> Begun | None:
        """The rollout that `take` returns next; None if the queue is empty."""
        return self._begun[0] if self._begun else None

    def explorations(self) -> list[Any]:
        """Returns each group's exploration state before the rollout that `take` returns next."""
        return self._before if self._begun else self._explorations()

    def begin(self, actor: RowPolicy | None, steps: int, random_steps: int, kwargs: str) -> None:
        """Starts a rollout, or lets it follow the one that runs.

        Nothing happens if another one already follows.

        Args:
            actor: As in `Environments.rollout`.
            steps: T, the same for all rollouts in the queue.
            random_steps: Number of steps with random actions, counted from the beginning of the
                rollout that `take` returns next.
            kwargs: JSON of the changed keyword arguments of episodes that it begins.
        """
        with self._lock:
            self._before = self.explorations()
            if self._unfinished() < 2:
                random_steps = max(0, random_steps - steps * len(self._begun))
                self._submit(actor, steps, random_steps, kwargs)

    def _unfinished(self) -> int:
        return sum(not each.future.done() for each in self._begun)

    def _submit(self, actor: RowPolicy | None, steps: int, random_steps: int, kwargs: str) -> None:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "collector")
        future = self._thread.submit(self._in_thread, actor, steps, random_steps, kwargs)
        self._begun.append(Begun(future, actor, kwargs))

    def _in_thread(
        self, actor: RowPolicy | None, steps: int, random_steps: int, kwargs: str
    ) -> tuple[list[Rollout], list[Any]]:
        """Returns the result of a rollout, and each group's exploration state after it."""
        try:
            parts = self._run(actor, steps, random_steps, kwargs)
        except BaseException:
            self._abort()
            raise
        explorations = self._explorations()
        with self._lock:
            is_last = self._unfinished() == 1  # this one
            if self._never_waits and is_last and len(self._begun) < _MOST_AHEAD:
                self._submit(actor, steps, max(0, random_steps - steps), kwargs)
        return parts, explorations

    def take(self, is_interrupted: Callable[[], bool]) -> list[Rollout]:
        """Waits for the first rollout and returns its results.

        Args:
            is_interrupted: Returns whether to stop waiting.

        Raises:
            InterruptedRolloutError: If `is_interrupted` returns True. The rollout stays in the
                queue.
        """
        future = self._begun[0].future
        while not wait([future], _POLL).done:
            if is_interrupted():
                raise InterruptedRolloutError
        parts, explorations = future.result()
        with self._lock:
            self._begun.popleft()
            self._before = explorations
        found: list[Rollout] = parts
        return found

    def wait(self, patience: float | None, is_interrupted: Callable[[], bool]) -> None:
        """Waits until no rollout runs.

        Args:
            patience: The longest time to wait, in seconds; None: unlimited.
            is_interrupted: Returns whether to stop waiting.
        """
        futures = [each.future for each in self._begun.copy()]
        end = math.inf if patience is None else time.monotonic() + patience
        while (left := end - time.monotonic()) > 0 and not is_interrupted():
            if not wait(futures, min(left, _POLL)).not_done:
                break

    def close(self) -> None:
        """Ends the thread."""
        if self._thread is not None:
            self._thread.shutdown()
