"""Updates are owed exactly, whatever the ratio."""

from __future__ import annotations

from fractions import Fraction

import pytest

from eagerly.training.update_budget import UpdateBudget


@pytest.mark.parametrize("ratio", ["1", "0.5", "0.3", "2.75", "0.001"])
def test_what_is_paid_and_what_is_owed_make_what_the_steps_owe(ratio: str) -> None:
    budget, paid = UpdateBudget(Fraction(ratio), 7), 0
    for rounds in range(1, 2000):
        budget.stepped(3)
        while budget.is_call_due:
            budget.paid()
            paid += 7
        assert budget.owed + paid == Fraction(ratio) * 3 * rounds
        assert 0 <= budget.owed < 7


def test_a_budget_of_another_ratio_is_taken_over_exactly() -> None:
    before = UpdateBudget(Fraction("0.3"), 2)
    before.stepped(1)
    budget = UpdateBudget(Fraction("0.5"), 2)
    budget.restore(before.state())
    budget.stepped(1)
    assert budget.owed == Fraction(8, 10)
    budget.stepped(3)
    assert budget.is_call_due
    budget.paid()
    assert budget.owed == Fraction(3, 10)


def test_what_no_run_leaves_is_refused() -> None:
    budget = UpdateBudget(Fraction(1), 2)
    budget.restore({"owed": "4096000"})
    for owed in ("1000000001", "-1", "1/0.5"):
        with pytest.raises(ValueError, match=r"updates are owed, which no run leaves"):
            budget.restore({"owed": owed})
    assert budget.owed == 4096000
