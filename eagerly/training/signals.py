"""Stopping well: the first signal asks, the second insists."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_ALL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Terminated(KeyboardInterrupt):
    """A signal that ends the process as Ctrl-C does: what is open is closed, and nothing stays.

    Args:
        number: The signal.
        text: What had happened by then; "" if there is nothing to add.

    Attributes:
        number: The signal.
    """

    def __init__(self, number: int, text: str = "") -> None:
        super().__init__(text or number)
        self.number = number


@contextmanager
def terminated_by_signals() -> Iterator[None]:
    """While entered, SIGTERM and SIGHUP raise `Terminated`; a second one ends the process at once.

    Outside the main thread, where Python delivers no signals, it does nothing.
    """

    def receive(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise Terminated(number)

    numbers = [signal.SIGTERM, signal.SIGHUP]
    if threading.current_thread() is not threading.main_thread():
        numbers = []
    # What `nohup` ignores stays ignored.
    numbers = [each for each in numbers if signal.getsignal(each) != signal.SIG_IGN]
    previous = {number: signal.signal(number, receive) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class StopSignals:
    """While entered, turns the first SIGINT, SIGTERM or SIGHUP into a request to stop.

    The loop reads `received` where it can stop without losing anything. A second signal ends the
    process at once. Outside the main thread, where Python delivers no signals, it does nothing.

    Args:
        numbers: The signals to handle from the beginning; all three by default.

    Attributes:
        received: The first signal, None while there was none.
        then: Called by the signal handler when the first signal has come.
    """

    def __init__(self, *numbers: signal.Signals) -> None:
        self.received: signal.Signals | None = None
        self._numbers = numbers or _ALL
        self._previous: dict[signal.Signals, Any] = {}
        self.then: Callable[[], object] = lambda: None

    def __repr__(self) -> str:
        return f"{type(self).__name__}(received={self.received and self.received.name})"

    def __enter__(self) -> StopSignals:
        self.listen(*self._numbers)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

    def listen(self, *numbers: signal.Signals) -> None:
        """Handles these signals, too, until exit."""
        if self.received or threading.current_thread() is not threading.main_thread():
            return
        for number in numbers:
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue  # set by `nohup`
            self._previous.setdefault(number, signal.getsignal(number))
            signal.signal(number, self._receive)

    def raise_received(self, text: str) -> None:
        """Raises the exception of the signal that was received, if there was one.

        Raises:
            KeyboardInterrupt: On SIGINT.
            Terminated: On SIGTERM and SIGHUP; it is a `KeyboardInterrupt`.
        """
        if self.received == signal.SIGINT:
            raise KeyboardInterrupt(text)
        if self.received:
            raise Terminated(self.received, text)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number)
        # Set by name: a process that was started in the background has SIGINT ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if signal.SIGHUP in self._previous:
            # A terminal that goes away sends it more than once.
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self.then()
