"""Tasks in child processes: results, errors and crashes."""

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


def test_grandchildren_neither_delay_the_result_nor_survive_it(tmp_path: Path) -> None:
    found = in_child("the test", children_tasks.returning, tmp_path / "child")
    np.testing.assert_array_equal(found, np.arange(300_000))
    assert gone(int((tmp_path / "child").read_text()))
    with pytest.raises(RunError, match="the test failed: its process was killed by SIGABRT"):
        in_child("the test", children_tasks.aborting, tmp_path / "child")
    assert gone(int((tmp_path / "child").read_text()))


def test_an_exception_becomes_a_one_line_error() -> None:
    with pytest.raises(RunError, match=r"^the test failed: KeyError: 'no such thing'$"):
        in_child("the test", children_tasks.failing)


@pytest.mark.parametrize("code", ["0", "3"])
def test_a_child_that_dies_while_it_answers_raises_an_error(
    code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODE", code)
    message = f"the test failed: its process exited with code {code}\n(?s:.*)output of the child"
    with pytest.raises(RunError, match=message):
        in_child("the test", children_tasks.dying)


def test_a_truncated_answer_raises_an_error() -> None:
    with pytest.raises(RunError, match="its process exited with code 0"):
        in_child("the test", children_tasks.truncating)


def test_the_child_has_no_standard_input() -> None:
    assert in_child("the test", children_tasks.reading) == ""


def test_the_child_and_its_own_children_die_with_the_parent(tmp_path: Path) -> None:
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
            os.kill(process, 0)  # fails if the process does not exist
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    assert all(map(gone, processes))
