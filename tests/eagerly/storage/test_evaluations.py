"""The evaluation table: its columns, its limits and how it is read."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

from eagerly.errors import RunError
from eagerly.storage import evaluations
from eagerly.storage.append_log import AppendLog
from eagerly.storage.evaluations import EvaluationTable, read_results
from eagerly.storage.files import RunFiles

ROW = {"steps": 1, "updates": 1, "return_mean": 2.0}


def rows(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_the_first_row_determines_whether_there_is_a_success_rate(tmp_path: Path) -> None:
    path = tmp_path / "evaluations.csv"
    table = EvaluationTable(path)
    table.add(ROW | {"success_rate": 0.5, "other_return_mean": 3.0, "other_success_rate": 1.0})
    # A resumed run continues the existing table.
    EvaluationTable(path).add(ROW | {"steps": 2, "other_return_mean": 4.0})
    assert rows(path)[1:] == ["1,1,2.0,0.5,3.0,1.0", "2,1,2.0,nan,4.0,nan"]
    np.testing.assert_array_equal(read_results(path).success_rate, [0.5, np.nan])


def test_a_table_without_a_success_rate_never_gets_one(tmp_path: Path) -> None:
    path = tmp_path / "evaluations.csv"
    EvaluationTable(path).add(ROW)
    EvaluationTable(path).add(ROW | {"steps": 2, "success_rate": 0.5})
    assert rows(path) == ["steps,updates,return_mean", "1,1,2.0", "2,1,2.0"]
    assert np.isnan(read_results(path).success_rate).all()
    with pytest.raises(RunError, match="must have the columns steps, updates, return_mean; got"):
        EvaluationTable(path).add(ROW | {"steps": 3, "other_return_mean": 1.0})


def test_a_row_is_written_only_after_the_points_of_its_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, points = tmp_path / "evaluations.csv", AppendLog(tmp_path / "points")
    table, append = EvaluationTable(path, points=points), RunFiles.append

    def full(files: RunFiles, name: str, content: bytes) -> None:
        if name == "points":
            raise OSError(errno.ENOSPC, "full")
        append(files, name, content)

    monkeypatch.setattr(RunFiles, "append", full)
    points.append(b"point")
    table.add(ROW)
    with pytest.raises(OSError, match="full"):
        table.sync()
    assert not path.exists()
    monkeypatch.undo()
    table.sync()
    assert (points.is_empty, len(rows(path))) == (False, 2)
    assert (tmp_path / "points").read_bytes() == b"point"


HEADER = "steps,updates,return_mean\n"
INVALID = {
    "too many rows": (HEADER + "".join(f"{n},1,2\n" for n in range(6)), "more than 5 rows"),
    "a wide row": (HEADER + "1," * 100 + "\n", "a line has more than 100 bytes"),
    "a wide header": ("steps," * 50 + "\n", "a line has more than 100 bytes"),
    "a row of several lines": (HEADER + '1,1,"2\n3"\n', "damaged"),
    "repeated steps": (HEADER + "1,1,2\n1,1,2\n", "steps must increase"),
    "an infinite return": (HEADER + "1,1,inf\n", "returns must be finite"),
    "a large file": (HEADER + "1,1,2\n" * 200, "at most 1000 bytes; got"),
}


@pytest.mark.parametrize("case", INVALID)
def test_invalid_tables_are_rejected_and_a_partial_last_row_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    for name, limit in {"_MOST": 5, "LONGEST_ROW": 100, "_LARGEST": 1000}.items():
        monkeypatch.setattr(evaluations, name, limit)
    content, message = INVALID[case]
    path = tmp_path / "evaluations.csv"
    path.write_text(content)
    with pytest.raises(RunError, match=message):
        read_results(path)
    fine = HEADER + "".join(f"{n},0,2\n" for n in range(5))
    path.write_text(fine + "6,1")  # a killed run can leave a partial row
    assert read_results(path).steps.tolist() == [0, 1, 2, 3, 4]
    assert not read_results(path).counted.any()


def test_score_and_best_return_count_the_same_evaluations(tmp_path: Path) -> None:
    path = tmp_path / "evaluations.csv"
    table = EvaluationTable(path)
    assert (str(read_results(path)), table.score) == ("no evaluation yet", None)
    table.add({"steps": 1, "updates": 0, "return_mean": 99.0})
    results = read_results(path)
    assert (results.best_return, results.score, table.score) == (None, None, None)
    assert str(results) == "no evaluation yet since the first update"
    for step, value in ((2, 50.0), (3, 1.0), (4, 2.0), (5, 6.0)):
        table.add({"steps": step, "updates": 1, "return_mean": value})
    results = read_results(path)
    assert str(results) == "mean of the last 3 evaluations 3; best 50 at step 2"
    assert (results.best_return, results.score, table.score) == (50.0, 3.0, 3.0)
    since = read_results(path, after=3)  # settings were overridden at step 3
    assert str(since) == "mean of the last 2 evaluations 4; best 6 at step 5"
    assert (since.best_return, since.score, EvaluationTable(path, 3).score) == (6.0, 4.0, 4.0)
    unscored = read_results(path, after=5)
    assert unscored.best is None
    assert str(unscored) == "no evaluation yet since the first update and the last override"


def test_rows_that_the_reader_would_reject_are_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "evaluations.csv"
    table = EvaluationTable(path)
    table.add(ROW)
    monkeypatch.setattr(evaluations, "LONGEST_ROW", 100)
    with pytest.raises(RunError, match=r"a row of .* must be shorter than 100 bytes; got 10[0-9]"):
        table.add(ROW | {"steps": 2, "return_mean": int("9" * 100)})
    monkeypatch.setattr(evaluations, "_LARGEST", 45)
    table.add(ROW | {"steps": 2})
    with pytest.raises(RunError, match="evaluate less often"):
        table.add(ROW | {"steps": 3})
    monkeypatch.setattr(evaluations, "_LARGEST", 1000)
    monkeypatch.setattr(evaluations, "_MOST", 2)
    with pytest.raises(RunError, match="evaluate less often"):
        table.add(ROW | {"steps": 3})
    assert rows(path)[1:] == ["1,1,2.0", "2,1,2.0"]
    assert read_results(path).steps.tolist() == [1, 2]
