"""The watchdog fires if a call hangs, and only then."""

from __future__ import annotations

import logging
import threading
import time
import types
from collections.abc import Iterator

import pytest

from eagerly.environments import watchdog as module
from eagerly.environments.watchdog import Watchdog


@pytest.fixture
def fired(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls that timed out. The watchdog records them here and ends no process."""
    found: list[str] = []
    monkeypatch.setattr(Watchdog, "_end_process", lambda self, call, frame: found.append(call[0]))
    return found


@pytest.fixture
def watchdog(fired: list[str]) -> Iterator[Watchdog]:
    watchdog = Watchdog(0.4, lambda: "here")
    yield watchdog
    watchdog.close()


def test_a_hanging_call_is_detected(fired: list[str], watchdog: Watchdog) -> None:
    with watchdog.calling("making something"):
        deadline = time.monotonic() + 10.0
        while not fired and time.monotonic() < deadline:
            time.sleep(0.05)
    assert fired[0] == "making something"


def test_short_calls_and_long_pauses_are_ignored(fired: list[str], watchdog: Watchdog) -> None:
    for _ in range(8):
        with watchdog.calling("a step"):
            time.sleep(0.1)
    time.sleep(0.8)
    assert fired == []


def test_a_call_in_the_debugger_is_ignored(fired: list[str], watchdog: Watchdog) -> None:
    debugger = types.ModuleType("pdb")
    exec("import time\ndef interaction(): time.sleep(1.0)", debugger.__dict__)
    with watchdog.calling("a step"):
        debugger.interaction()
    assert fired == []


def test_a_timeout_of_zero_disables_the_watchdog(fired: list[str]) -> None:
    watchdog = Watchdog(0.0, lambda: "here")
    with watchdog.calling("a step"):
        time.sleep(0.3)
    assert fired == []


@pytest.mark.parametrize("timeout", [0.0, 0.2])
def test_a_reset_without_a_limit_is_reported_and_never_stopped(
    timeout: float,
    fired: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(module, "_LONGEST_TICK", 0.02)
    monkeypatch.setattr(module, "_FIRST_NOTE", 0.1)
    caplog.set_level(logging.INFO, "eagerly")
    first = Watchdog(timeout, lambda: "here", limits_resets=False)
    watchdog = first.another()
    watchdog.call = "environment 0", "reset", 1, threading.get_ident()
    deadline = time.monotonic() + 10.0
    while not caplog.messages and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.3)
    assert (caplog.messages, fired) == (
        ["environment 0 waits for its reset, without a time limit"],
        [],
    )
    watchdog.call = "environment 0", "step", 1, threading.get_ident()
    while timeout and not fired and time.monotonic() < deadline:
        time.sleep(0.05)
    assert bool(fired) == bool(timeout)
    first.close()
    watchdog.close()
