"""Graceful stopping: the first signal requests a stop, the second one forces it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_ALL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Terminated(KeyboardInterrupt):
    """Raised on SIGTERM or SIGHUP. Like Ctrl-C, it unwinds the stack, so that resources are closed.

    Args:
        number: The signal.
        text: The state of the run, such as "saved at step 1000"; "" if there is nothing to add.

    Attributes:
        number: The signal.
    """

    def __init__(self, number: int, text: str = "") -> None:
        super().__init__(text or number)
        self.number = number


@contextmanager
def terminated_by_signals() -> Iterator[None]:
    """Raises `Terminated` on SIGTERM and SIGHUP while entered; a repeated signal kills the process.

    Does nothing outside the main thread, where Python delivers no signals.
    """

    def receive(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise Terminated(number)

    numbers = [signal.SIGTERM, signal.SIGHUP]
    if threading.current_thread() is not threading.main_thread():
        numbers = []
    # Signals that `nohup` ignores stay ignored.
    numbers = [each for each in numbers if signal.getsignal(each) != signal.SIG_IGN]
    previous = {number: signal.signal(number, receive) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class StopSignals:
    """Turns the first SIGINT, SIGTERM or SIGHUP into a request to stop, while entered.

    The training loop checks `received` where it can stop without losing data. A second SIGINT or
    SIGTERM ends the process immediately; repeated SIGHUPs are ignored. Does nothing outside the
    main thread, where Python delivers no signals.

    Args:
        numbers: The signals to handle on entry; all three by default.

    Attributes:
        received: The first signal; None if none was received.
        then: Called by the signal handler on the first signal.
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
        """Handles these signals as well, until exit."""
        if self.received or threading.current_thread() is not threading.main_thread():
            return
        for number in numbers:
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue  # set by `nohup`
            self._previous.setdefault(number, signal.getsignal(number))
            signal.signal(number, self._receive)

    def raise_received(self, text: str) -> None:
        """Raises the exception of the received signal, if any.

        Raises:
            KeyboardInterrupt: On SIGINT.
            Terminated: On SIGTERM and SIGHUP. It derives from `KeyboardInterrupt`.
        """
        if self.received == signal.SIGINT:
            raise KeyboardInterrupt(text)
        if self.received:
            raise Terminated(self.received, text)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number)
        # Do not restore the previous handlers: background processes start with SIGINT ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if signal.SIGHUP in self._previous:
            # A closing terminal sends it more than once.
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self.then()
