"""Exports without processes of their own, where those are not what is tested."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from eagerly.export import exporting
from eagerly.export.children import in_child


def work_here(monkeypatch: pytest.MonkeyPatch, *, but: str = "") -> None:
    """Lets exports convert, and run what they made, in this process.

    Args:
        monkeypatch: Undoes it.
        but: What still gets a process of its own: "the conversion" or "the exported policy".
    """

    def done(what: str, task: Callable[..., Any], *args: Any, **more: Any) -> Any:
        return in_child(what, task, *args, **more) if what == but else task(*args)

    monkeypatch.setattr(exporting, "in_child", done)
