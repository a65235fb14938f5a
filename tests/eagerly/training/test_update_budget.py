"""Updates are owed exactly, whatever the ratio."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from eagerly.training.update_budget import UpdateBudget

NO_ROLLOUT: Any = None  # which this budget does not look at


@pytest.mark.parametrize("ratio", ["1", "0.5", "0.3", "2.75", "0.001"])
def test_what_is_paid_and_what_is_owed_make_what_the_steps_owe(ratio: str) -> None:
    budget, paid = UpdateBudget(Fraction(ratio), 7), 0
    for rounds in range(1, 2000):
        budget.record_rollout(NO_ROLLOUT, 3)
        while budget.is_call_due:
            budget.record_updates()
            paid += 7
        assert budget.owed + paid == Fraction(ratio) * 3 * rounds
        assert 0 <= budget.owed < 7


def test_a_budget_of_another_ratio_is_taken_over_exactly() -> None:
    before = UpdateBudget(Fraction("0.3"), 2)
    before.record_rollout(NO_ROLLOUT, 1)
    budget = UpdateBudget(Fraction("0.5"), 2)
    budget.restore(before.state())
    budget.record_rollout(NO_ROLLOUT, 1)
    assert budget.owed == Fraction(8, 10)
    budget.record_rollout(NO_ROLLOUT, 3)
    assert budget.is_call_due
    budget.record_updates()
    assert budget.owed == Fraction(3, 10)


def test_what_no_run_leaves_is_refused() -> None:
    budget = UpdateBudget(Fraction(1), 2)
    budget.restore({"owed": "4096000"})
    for owed, expected in (
        ("1000000001", "updates are owed, which no run leaves"),
        *((each, "owed of UpdateBudget must be a fraction") for each in ("-1", "1/0.5", "1/0", 1)),
    ):
        with pytest.raises(ValueError, match=expected):
            budget.restore({"owed": owed})
    assert budget.owed == 4096000
