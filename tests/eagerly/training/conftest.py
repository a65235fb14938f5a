"""What tests of whole runs share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.small_runs import TrainRun, train_in


@pytest.fixture(autouse=True, scope="module")
def _unoptimized(unoptimized: None) -> None:
    """Leaves TensorFlow's graph optimiser out of all of them."""


@pytest.fixture
def train(tmp_path: Path) -> TrainRun:
    """Trains or continues small runs, each in a directory of the name given.

    Networks have one hidden layer, where a test does not give its own.
    """

    def run(name: str = "run", **options: Any) -> Any:
        is_new = not (tmp_path / name / "config.json").exists()
        if is_new and not options.keys() & {"hidden_sizes", "models", "actor", "critic"}:
            options["hidden_sizes"] = (8,)
        return train_in(tmp_path / name, **options)

    return run
