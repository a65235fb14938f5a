"""What tests of whole runs share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.small_runs import TrainRun, train_in


@pytest.fixture(autouse=True, scope="module")
def _unoptimized(unoptimized: None) -> None:
    """Leaves TensorFlow's graph optimiser out of all of them."""


@pytest.fixture
def train(tmp_path: Path) -> TrainRun:
    """Trains or continues small runs, each in a directory of the name given."""
    return lambda name="run", **options: train_in(tmp_path / name, **options)
