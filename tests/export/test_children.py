"""Tasks in processes of their own: what they return, and how they die."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from eagerly import RunError
from eagerly.export.children import in_child
from tests.export import children_tasks
from tests.helpers import gone


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
