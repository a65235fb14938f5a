"""The simulated robot, whose run is killed and resumed, and the summary of its log."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from eagerly.benchmarks import robot_ages
from eagerly.benchmarks.robot import RECORD
from eagerly.storage.manifest import published


def test_the_summary_counts_periods_between_observation_and_action() -> None:
    rows = [(5, 0.10, 4, 0.02), (6, 0.12, 5, 0.02), (7, 0.15, 5, 0.05), (8, 0.16, 5, 0.06)]
    rows += [(9, 0.18, -1, np.nan)]
    found = robot_ages.summary(np.array(rows, RECORD), 50.0)
    assert found["age_periods"] == {"1": 2, "2": 1, "3": 1}
    assert (found["periods"], found["without_recent_action"], found["over_two_periods"]) == (
        5,
        1,
        1,
    )
    assert (found["age_ms"]["max"], found["longest_delay_ms"]) == (60.0, 10.0)


@pytest.mark.long
def test_a_run_in_the_robot_is_killed_and_resumed_without_a_reset(tmp_path: Path) -> None:
    run, words = tmp_path / "run", "--steps 300 --hertz 200 --kill-after 150 --warmup-steps 60"
    options = f"{words} --checkpoint-every-steps 20 --run-dir {run}"
    flags = "--rollout-steps 20 --updates-per-call 10 --hidden-sizes 8 --mode graph"
    result = CliRunner().invoke(
        robot_ages.main, [*options.split(), "--", *flags.split()], catch_exceptions=False
    )
    assert result.exit_code == 0
    newest = published(run)[-1]
    assert (newest.steps, newest.updates) == (300, 240)
    log = robot_ages.read(run.with_name("run-robot.periods"))
    assert (np.diff(log["period"]) == 1).all()  # the robot ran all the time
    ages = json.loads(run.with_suffix(".ages.json").read_text())
    assert ages["killed and starting again"]["without_recent_action"] > 0
    printed = run.with_suffix(".log").read_text()  # of both starts
    assert "hardware      1 instance, never checked" in printed
    assert "actions   " in printed
