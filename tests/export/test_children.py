"""Tasks in processes of their own: what they return, and how they die."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eagerly import RunError
from eagerly.export.children import in_child
from tests.helpers import gone


def _started(child: Path) -> None:
    """Starts a simulator that keeps every file descriptor."""
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    child.write_text(str(subprocess.Popen(command, close_fds=False).pid))


def returning(child: Path) -> np.ndarray:
    _started(child)
    if os.fork() == 0:
        time.sleep(600)
        os._exit(0)
    return np.arange(300_000)


def aborting(child: Path) -> None:
    _started(child)
    os.abort()


def failing() -> None:
    raise KeyError("no such thing")


class Fatal:
    def __reduce__(self) -> Any:
        os._exit(int(os.environ.get("CODE", "3")))


def dying() -> Any:
    os.write(1, b"what it printed")
    return [np.zeros(100_000), Fatal()]


def truncating() -> Any:
    dumps = pickle.dumps
    pickle.dumps = lambda answer: _Short(dumps(answer))  # type: ignore[assignment,misc]
    return np.zeros(1000)


class _Short(bytes):
    def __len__(self) -> int:
        return super().__len__() + 1


def test_what_it_started_neither_delays_the_answer_nor_survives_it(tmp_path: Path) -> None:
    found = in_child("the test", returning, tmp_path / "child")
    np.testing.assert_array_equal(found, np.arange(300_000))
    assert gone(int((tmp_path / "child").read_text()))
    with pytest.raises(RunError, match="the test failed: its process was ended by SIGABRT"):
        in_child("the test", aborting, tmp_path / "child")
    assert gone(int((tmp_path / "child").read_text()))


def test_what_it_raises_is_a_sentence() -> None:
    with pytest.raises(RunError, match=r"^the test failed: KeyError: 'no such thing'$"):
        in_child("the test", failing)


@pytest.mark.parametrize("code", ["0", "3"])
def test_dying_while_it_answers_is_no_answer(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODE", code)
    message = f"the test failed: its process ended with exit code {code}\n(?s:.*)what it printed"
    with pytest.raises(RunError, match=message):
        in_child("the test", dying)


def test_a_part_of_an_answer_is_no_answer() -> None:
    with pytest.raises(RunError, match="its process ended with exit code 0"):
        in_child("the test", truncating)
