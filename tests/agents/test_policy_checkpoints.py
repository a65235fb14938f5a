"""Which policy is kept, and when updates are paid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import pytest

from eagerly.agents.policy_checkpoints import LONGEST_EPISODE, EpisodicBudget, PolicyCheckpoints
from eagerly.errors import RunStoppedError
from eagerly.training.update_budget import UpdateBudget


@dataclass(frozen=True)
class Ended:
    """An episode."""

    total_reward: float
    environment: int = 0
    length: int = 1
    steps_left: int = 0


def judged(*returns: float, checkpoints: PolicyCheckpoints | None = None) -> PolicyCheckpoints:
    checkpoints = checkpoints or PolicyCheckpoints()
    for total in returns:
        checkpoints.ended([Ended(total)], judging=True)
    return checkpoints


def budget_of(per_call: int = 10) -> EpisodicBudget:
    return EpisodicBudget(UpdateBudget(Fraction(1), per_call), "--no-policy-checkpoints")


def test_a_policy_is_as_good_as_its_worst_episode() -> None:
    checkpoints = judged(5.0, -1.0, 7.0)
    assert checkpoints.is_judged(3)
    assert not checkpoints.is_judged(4)
    checkpoints.keep()
    assert (checkpoints.best, checkpoints.kept) == (-1.0, 1)


def test_the_first_episode_that_is_worse_than_the_kept_policy_settles_it() -> None:
    checkpoints = judged(3.0)
    checkpoints.keep()
    checkpoints.changed([Ended(3.0)])
    assert not judged(3.0, checkpoints=checkpoints).is_worse()  # equal is good enough
    assert judged(2.9, checkpoints=checkpoints).is_worse()
    checkpoints.changed([Ended(2.9)])
    assert not checkpoints.is_worse()
    assert not checkpoints.is_judged(1)


def test_random_episodes_judge_nobody_nor_does_one_that_began_among_them() -> None:
    checkpoints = PolicyCheckpoints()
    checkpoints.ended([Ended(9.0, 0), Ended(9.0, 1)], judging=False)
    checkpoints.ended([Ended(-9.0, 1)], judging=False)  # environment 0 is within a random episode
    checkpoints.ended([Ended(1.0, 0), Ended(2.0, 1)], judging=True)
    assert checkpoints.is_judged(1)
    assert not checkpoints.is_judged(2)
    checkpoints.keep()
    assert checkpoints.best == 2.0
    checkpoints.ended([Ended(1.0, 0)], judging=True)  # this one was the policy's from its beginning
    assert checkpoints.is_judged(2)


def test_in_a_round_of_several_steps_only_what_ends_with_it_begins_anew_with_the_next_policy() -> (
    None
):
    checkpoints = PolicyCheckpoints()
    checkpoints.changed([Ended(1.0, 0, steps_left=3), Ended(1.0, 1)])
    # The first of environment 0 began before the round's end, its second one after it.
    checkpoints.ended([Ended(-9.0, 0), Ended(5.0, 1), Ended(4.0, 0)], judging=True)
    assert checkpoints.is_judged(2)
    assert not checkpoints.is_judged(3)
    checkpoints.keep()
    assert checkpoints.best == 4.0
    checkpoints.ended([Ended(8.0, 0, steps_left=1), Ended(8.0, 1)], judging=False)
    checkpoints.changed([])
    checkpoints.ended([Ended(8.0, 1)], judging=True)
    assert not checkpoints.is_judged(1)


def test_an_episode_during_which_the_policy_changed_judges_nobody() -> None:
    checkpoints = PolicyCheckpoints()
    checkpoints.ended([Ended(1.0, 0)], judging=True)
    checkpoints.changed([Ended(1.0, 0)])  # environments 1 and 2 are within an episode
    checkpoints.ended([Ended(-5.0, 1)], judging=True)
    assert not checkpoints.is_judged(1)
    checkpoints.ended([Ended(4.0, 0), Ended(-6.0, 2)], judging=True)
    checkpoints.ended([Ended(3.0, 1)], judging=True)
    assert checkpoints.is_judged(2)
    checkpoints.keep()
    assert checkpoints.best == 3.0


def test_the_kept_return_is_rescaled_once() -> None:
    checkpoints = judged(100.0)
    checkpoints.keep()
    checkpoints.rescale_best(0.9)
    other = PolicyCheckpoints()
    other.restore(checkpoints.state())
    for each in (checkpoints, other):
        each.rescale_best(0.9)
        assert each.best == pytest.approx(90.0)
    none_yet = PolicyCheckpoints()
    none_yet.rescale_best(0.9)
    assert none_yet.best is None


def test_judging_goes_on_where_it_was_saved() -> None:
    one = judged(1.0)
    one.keep()
    one.changed([Ended(0.0, 2)])
    one.ended([Ended(4.0, 2), Ended(8.0, 1)], judging=True)
    other = PolicyCheckpoints()
    other.restore(one.state())
    assert other.state() == one.state()
    for each in (one, other):
        each.ended([Ended(0.5, 1)], judging=True)
        assert each.is_worse()
        assert each.is_judged(2)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_return_that_is_not_finite_is_refused(value: float) -> None:
    state = judged(1.0).state()
    with pytest.raises(ValueError, match="must be finite"):
        PolicyCheckpoints().restore(state | {"worst": value})


def test_calls_are_due_when_they_are_to_be_paid_until_no_whole_one_is_owed() -> None:
    budget = budget_of()
    for _ in range(25):
        budget.stepped(1)
    assert (budget.can_pay, budget.is_call_due) == (True, False)
    budget.pay()
    made = 0
    while budget.is_call_due:
        budget.paid()
        made += 1
    assert (made, budget.can_pay) == (2, False)
    for _ in range(5):
        budget.stepped(1)
    assert (budget.can_pay, budget.is_call_due) == (True, False)  # the five left over count


def test_a_budget_that_was_being_paid_goes_on_paying() -> None:
    one = budget_of()
    for _ in range(30):
        one.stepped(1)
    one.pay()
    one.paid()
    other = budget_of()
    other.restore(one.state())
    assert other.is_call_due
    other.paid()
    assert other.is_call_due
    other.paid()
    assert not other.is_call_due


def test_with_larger_calls_than_before_what_is_left_waits_for_the_end_of_an_episode() -> None:
    one = budget_of(2)
    for _ in range(4):
        one.stepped(1)
    one.pay()
    one.paid()
    other = budget_of(4)
    other.restore(one.state())
    for _ in range(2):
        other.stepped(1)
    assert (other.can_pay, other.is_call_due) == (True, False)


def test_a_warm_up_owes_nothing_and_is_known() -> None:
    budget = budget_of()
    budget.stepped(0)
    assert not budget.has_begun
    budget.stepped(1)
    assert budget.has_begun


def ends_at(budget: EpisodicBudget, rounds: Sequence[int]) -> None:
    """Steps a budget; episodes end in all of these rounds but the last one."""
    for number in range(1, rounds[-1] + 1):
        budget.stepped(0)
        if number in rounds[:-1]:
            budget.ended()


def test_an_episode_without_an_end_ends_the_run_with_the_switch_in_the_message() -> None:
    ends_at(budget_of(), (50_000, 2 * LONGEST_EPISODE - 50_001))
    with pytest.raises(RunStoppedError, match=r"of each environment.* another run with --no-pol"):
        ends_at(budget_of(), (LONGEST_EPISODE + 1,))
