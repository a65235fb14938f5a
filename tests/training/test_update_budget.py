"""Updates are owed exactly, whatever the ratio."""

from __future__ import annotations

from fractions import Fraction

import pytest

from eagerly.training.update_budget import Debt


@pytest.mark.parametrize("ratio", ["1", "0.5", "0.3", "2.75", "0.001"])
def test_what_is_paid_and_what_is_owed_make_what_the_steps_owe(ratio: str) -> None:
    debt, paid = Debt(Fraction(ratio), 7), 0
    for steps in range(1, 2000):
        debt.step(3)
        while debt.is_call:
            debt.pay()
            paid += 7
        assert debt.updates + paid == Fraction(ratio) * 3 * steps
        assert 0 <= debt.updates < 7


def test_a_debt_of_another_ratio_is_taken_over_exactly() -> None:
    debt = Debt(Fraction("0.5"), 2)
    debt.updates = Fraction(3, 10)
    debt.step(1)
    assert debt.updates == Fraction(8, 10)
    debt.step(3)
    assert debt.is_call
    debt.pay()
    assert debt.updates == Fraction(3, 10)
