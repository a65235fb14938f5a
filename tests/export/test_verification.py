"""What differences and returns say of an export."""

from __future__ import annotations

import numpy as np
import pytest

from eagerly.export.verification import loss, summary
from eagerly.training.evaluation import Evaluation


def played(*returns: float) -> Evaluation:
    return Evaluation(np.array(returns), np.ones(len(returns), np.int64))


def test_a_loss_is_told_where_it_is_more_than_chance() -> None:
    before = played(100.0, 110.0, 90.0, 100.0)
    assert loss(before, played(101.0, 90.0, 95.0, 70.0)) is None  # far apart, but chance
    assert loss(before, played(99.0, 109.0, 89.0, 99.0)) is None  # certain, but 1 %
    found = loss(before, played(90.0, 99.0, 80.0, 91.0))
    assert found is not None
    assert "90.00 over 4 episodes, where the policy has 100.00" in found
    assert loss(played(-100.0), played(-200.0)) is None  # one episode tells nothing


def test_a_return_that_is_not_finite_is_refused() -> None:
    assert summary(None) is None
    assert summary(played(1.0, 3.0)) == {"mean": 2.0, "std": 1.0, "returns": [1.0, 3.0]}
    with pytest.raises(FloatingPointError, match="the returns became"):
        summary(played(np.nan))
