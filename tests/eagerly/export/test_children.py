"""Tasks in processes of their own: what they return, and how they die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from eagerly import RunError
from eagerly.export.children import in_child
from tests.eagerly.export import children_tasks
from tests.helpers import ROOT, gone


def test_what_it_started_neither_delays_the_answer_nor_survives_it(tmp_path: Path) -> None:
    found = in_child("the test", children_tasks.returning, tmp_path / "child")
    np.testing.assert_array_equal(found, np.arange(300_000))
    assert gone(int((tmp_path / "child").read_text()))
    with pytest.raises(RunError, match="the test failed: its process was ended by SIGABRT"):
        in_child("the test", children_tasks.aborting, tmp_path / "child")
    assert gone(int((tmp_path / "child").read_text()))


def test_what_it_raises_is_a_sentence() -> None:
    with pytest.raises(RunError, match=r"^the test failed: KeyError: 'no such thing'$"):
        in_child("the test", children_tasks.failing)


@pytest.mark.parametrize("code", ["0", "3"])
def test_dying_while_it_answers_is_no_answer(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODE", code)
    message = f"the test failed: its process ended with exit code {code}\n(?s:.*)what it printed"
    with pytest.raises(RunError, match=message):
        in_child("the test", children_tasks.dying)


def test_a_part_of_an_answer_is_no_answer() -> None:
    with pytest.raises(RunError, match="its process ended with exit code 0"):
        in_child("the test", children_tasks.truncating)


def test_it_has_no_standard_input() -> None:
    assert in_child("the test", children_tasks.reading) == ""


def test_it_ends_with_its_parent_and_so_does_what_it_started(tmp_path: Path) -> None:
    code = f"""
        from eagerly.export.children import in_child
        from tests.eagerly.export.children_tasks import waiting

        in_child("the test", waiting, {str(tmp_path / "processes")!r})
    """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT)
    try:
        deadline = time.monotonic() + 60.0
        while not (tmp_path / "processes").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        processes = [int(word) for word in (tmp_path / "processes").read_text().split()]
        for process in processes:
            os.kill(process, 0)  # which fails if there is none
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    assert all(map(gone, processes))
