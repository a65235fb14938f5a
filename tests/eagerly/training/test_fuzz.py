"""240 damaged run directories: each resumes exactly or is rejected; `make fuzz` tests more."""

from __future__ import annotations

import pytest

from tests.fuzzing import run_cases


@pytest.mark.long
def test_no_damage_causes_a_traceback_or_a_different_state() -> None:
    outcomes = list(run_cases(190, 430))
    assert [outcome for outcome in outcomes if outcome.is_bad] == []
    strange = {outcome.word for outcome in outcomes if "stranger" in outcome.file}
    assert {"opened", "trained on", "refused", "ended with 2"} <= strange
    # Runs with harmless damage continue, the others are rejected.
    words = {outcome.word for outcome in outcomes if "stranger" not in outcome.file}
    assert words == {
        "continued from the newest",
        "continued from the newest, said what is damaged",
        "continued from the one before",  # a checkpoint without a manifest counts as unpublished
        "continued from the one before, said what is damaged",
        "refused",
    }
