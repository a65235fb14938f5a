"""Shared fixtures for tests of complete runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.small_runs import TrainRun, train_in


@pytest.fixture(autouse=True, scope="module")
def _unoptimized(unoptimized: None) -> None:
    """Disables TensorFlow's graph optimizer in all tests that use this conftest."""


@pytest.fixture
def train(tmp_path: Path) -> TrainRun:
    """Returns a function that trains or resumes a small run in a directory of the given name.

    Networks have one hidden layer unless the test sets its own.
    """

    def run(name: str = "run", **options: Any) -> Any:
        is_new = not (tmp_path / name / "config.json").exists()
        if is_new and not options.keys() & {"hidden_sizes", "models", "actor", "critic"}:
            options["hidden_sizes"] = (8,)
        return train_in(tmp_path / name, **options)

    return run
