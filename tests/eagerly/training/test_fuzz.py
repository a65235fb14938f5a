"""240 damaged run directories: each resumes exactly or is refused; `make fuzz` tests more."""

from __future__ import annotations

import pytest

from tests.fuzzing import run_cases


@pytest.mark.long
def test_no_damage_ends_in_a_traceback_or_in_another_state() -> None:
    outcomes = list(run_cases(190, 430))
    assert [outcome for outcome in outcomes if outcome.is_bad] == []
    strange = {outcome.word for outcome in outcomes if "stranger" in outcome.file}
    assert {"opened", "trained on", "refused", "ended with 2"} <= strange
    # It was not all harmless, nor all refused.
    words = {outcome.word for outcome in outcomes if "stranger" not in outcome.file}
    assert words == {
        "continued from the newest",
        "continued from the newest, said what is damaged",
        "continued from the one before",  # a manifest that is gone was never published
        "continued from the one before, said what is damaged",
        "refused",
    }
