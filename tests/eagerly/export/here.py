"""Exports without child processes, for tests that do not need them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from eagerly.export import exporting, verification
from eagerly.export.children import in_child


def work_here(monkeypatch: pytest.MonkeyPatch, *, but: str = "") -> None:
    """Converts and checks exports in this process.

    Args:
        monkeypatch: Undoes the change after the test.
        but: The task that still runs in a child process: "the conversion" or "the exported policy".
    """

    def done(what: str, task: Callable[..., Any], *args: Any, **more: Any) -> Any:
        return in_child(what, task, *args, **more) if what == but else task(*args)

    for module in (exporting, verification):
        monkeypatch.setattr(module, "in_child", done)
