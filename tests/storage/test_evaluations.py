"""The table of evaluations: which columns it has, and what is read of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from eagerly.errors import RunError
from eagerly.storage.evaluations import EvaluationTable, read_results

ROW = {"steps": 1, "updates": 1, "return_mean": 2.0}


def rows(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_whether_there_is_a_rate_of_success_the_first_row_decides(tmp_path: Path) -> None:
    path = tmp_path / "evaluations.csv"
    table = EvaluationTable(path)
    table.add(ROW | {"success_rate": 0.5, "other_return_mean": 3.0, "other_success_rate": 1.0})
    # A run that was stopped goes on with the table that is there.
    EvaluationTable(path).add(ROW | {"steps": 2, "other_return_mean": 4.0})
    assert rows(path)[1:] == ["1,1,2.0,0.5,3.0,1.0", "2,1,2.0,nan,4.0,nan"]
    np.testing.assert_array_equal(read_results(path).success_rate, [0.5, np.nan])


def test_a_table_without_a_rate_of_success_stays_so(tmp_path: Path) -> None:
    path = tmp_path / "evaluations.csv"
    EvaluationTable(path).add(ROW)
    EvaluationTable(path).add(ROW | {"steps": 2, "success_rate": 0.5})
    assert rows(path) == ["steps,updates,return_mean", "1,1,2.0", "2,1,2.0"]
    assert np.isnan(read_results(path).success_rate).all()
    with pytest.raises(RunError, match="must have the columns steps, updates, return_mean; got"):
        EvaluationTable(path).add(ROW | {"steps": 3, "other_return_mean": 1.0})
