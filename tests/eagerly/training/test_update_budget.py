"""The update budget is exact for any replay ratio."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from eagerly.training.update_budget import UpdateBudget

NO_ROLLOUT: Any = None  # the default budget ignores rollouts


@pytest.mark.parametrize("ratio", ["1", "0.5", "0.3", "2.75", "0.001"])
def test_made_and_pending_updates_add_up_to_the_ratio_times_the_steps(ratio: str) -> None:
    budget, paid = UpdateBudget(Fraction(ratio), 7), 0
    for rounds in range(1, 2000):
        budget.record_rollout(NO_ROLLOUT, 3)
        while budget.is_call_due:
            budget.record_updates()
            paid += 7
        assert budget.owed + paid == Fraction(ratio) * 3 * rounds
        assert 0 <= budget.owed < 7


def test_the_state_of_another_ratio_is_restored_exactly() -> None:
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
    for ratio in ("0.3333333333333333", "5e-324"):
        before = UpdateBudget(Fraction(ratio), 2)
        before.record_rollout(NO_ROLLOUT, 1)
        budget.restore(before.state())
        assert budget.owed == Fraction(ratio)


def test_an_impossible_state_is_rejected() -> None:
    budget = UpdateBudget(Fraction(1), 2)
    budget.restore({"owed": "4096000"})
    for owed, expected in (
        ("1000000001", "updates owed, more than any run accumulates"),
        *((each, "owed of UpdateBudget must be a fraction") for each in ("-1", "1/0.5", "1/0", 1)),
    ):
        with pytest.raises(ValueError, match=expected):
            budget.restore({"owed": owed})
    assert budget.owed == 4096000
