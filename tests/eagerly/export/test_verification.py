"""Checks of the differences and returns of an export."""

from __future__ import annotations

import numpy as np
import pytest

from eagerly.errors import RunError
from eagerly.export.integers import plan, run
from eagerly.export.runner import differences, violations
from eagerly.export.verification import TOLERANCES, _check_rounding, loss, summary
from eagerly.policies.integer_grids import integers
from eagerly.training.evaluation import Evaluation
from tests.eagerly.export.drawn import MUTATIONS, actor, mutated, quantised


def played(*returns: float) -> Evaluation:
    return Evaluation(np.array(returns), np.ones(len(returns), np.int64))


def test_only_a_significant_loss_is_reported() -> None:
    before = played(100.0, 110.0, 90.0, 100.0)
    assert loss(before, played(101.0, 90.0, 95.0, 70.0)) is None  # a large loss, not significant
    assert loss(before, played(99.0, 109.0, 89.0, 99.0)) is None  # a significant loss of only 1 %
    found = loss(before, played(90.0, 99.0, 80.0, 91.0))
    assert found is not None
    assert "90.00 over 4 episodes instead of 100.00" in found
    assert loss(played(-100.0), played(-200.0)) is None  # one episode is not enough


def test_a_summary_has_the_statistics_of_the_returns() -> None:
    assert summary(None) is None
    assert summary(played(1.0, 3.0)) == {"mean": 2.0, "std": 1.0, "returns": [1.0, 3.0]}


def test_rare_integer_differences_must_be_small() -> None:
    given = {"continuous": 1, "choices": [], "low": [-1.0], "high": [1.0]}
    about = {"action": given, "tolerance": TOLERANCES["int8"]}
    expected = np.random.default_rng(0).integers(-128, 128, (1000, 1)) / 128.0

    def wrong(found: np.ndarray) -> list[str]:
        return violations(differences(about, found, expected, expected), TOLERANCES["int8"])

    assert wrong(expected) == []
    found = expected.copy()
    found[:2] += 3 / 128.0
    assert wrong(found) == []
    found[:9] = expected[:9] + 3 / 128.0
    assert [line[:7] for line in wrong(found)] == ["unequal"]
    found = expected.copy()
    found[0] *= -1.0
    assert [line[:7] for line in wrong(found)] == ["largest"]
    found[:9] = -expected[:9]
    assert len(wrong(found)) == 2


def test_large_changes_by_int8_rounding_are_reported_or_rejected(
    caplog: pytest.LogCaptureFixture,
) -> None:
    usual = {"mean": 0.01, "percentile_99": 0.04, "other_choices": 0.0, "unequal": 0.9}
    _check_rounding(dict(usual))
    assert caplog.messages == []
    _check_rounding(usual | {"percentile_99": 0.06})
    assert [line[:58] for line in caplog.messages] == [
        "int8 rounding changes the actions more than usual: percent"
    ]
    for much in ({"mean": 0.06}, {"percentile_99": 0.26}, {"other_choices": 0.06}):
        with pytest.raises(RunError, match=f"too much: {next(iter(much))}.* Train with --quant"):
            _check_rounding(usual | much)


@pytest.mark.parametrize("what", MUTATIONS)
def test_one_slightly_wrong_number_exceeds_the_int8_tolerance(what: str) -> None:
    network, random = quantised(actor()), np.random.default_rng(4)
    inputs = integers(random.normal(size=(1000, 5)), *network.ranges[0]).astype(np.int8)
    given = {"continuous": 2, "choices": [], "low": [-1.0, -1.0], "high": [1.0, 1.0]}
    about = {"action": given, "tolerance": TOLERANCES["int8"]}
    expected = run(plan(network), inputs) / 128.0
    for seed in range(2):
        found = run(plan(mutated(network, what, seed)), inputs) / 128.0
        assert violations(differences(about, found, expected, expected), TOLERANCES["int8"])
