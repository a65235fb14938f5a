"""Gates hold, fail or stay open as the tables say."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from eagerly.benchmarks.gates import Gates, Verdict
from eagerly.scripts.reproduce import main

SPREAD = (0.9, 0.97, 1.0, 1.03, 1.1)


def _write(folder: Path, label: str, env: str, level: float, steps: int, seeds: int = 5) -> None:
    """Writes runs whose scores lie around a level, with a higher evaluation halfway."""
    folder.mkdir(exist_ok=True)
    for seed in range(seeds):
        rows = [f"{s},{level * SPREAD[seed]}" for s in range(steps // 10, steps + 1, steps // 10)]
        (folder / f"{label}-{env}-{seed}.csv").write_text(
            "\n".join(["steps,return_mean", *rows]) + "\n"
        )


def _verdict(folder: Path, part: str, text: str) -> Verdict:
    (found,) = [v for v in Gates(folder).verdicts() if v.part == part and text in v.claim]
    return found


@pytest.mark.parametrize(("ours", "holds"), [(5000, True), (4700, True), (4000, False)])
def test_parity_asks_for_nine_tenths_and_an_interval_that_reaches_0(
    tmp_path: Path, ours: float, holds: bool
) -> None:
    _write(tmp_path, "ddpg", "HalfCheetah-v5", ours, 100_000)
    _write(tmp_path, "sb3-ddpg", "HalfCheetah-v5", 5000, 100_000)
    assert _verdict(tmp_path, "ddpg", "100,000").holds is holds


def test_a_longer_run_counts_as_it_was_then(tmp_path: Path) -> None:
    _write(tmp_path, "td3", "HalfCheetah-v5", 5000, 200_000)
    _write(tmp_path, "sb3-td3", "HalfCheetah-v5", 5000, 200_000)
    assert _verdict(tmp_path, "td3", "100,000").holds
    assert _verdict(tmp_path, "td3", "200,000").holds
    (tmp_path / "td3-HalfCheetah-v5-4.csv").unlink()
    verdict = _verdict(tmp_path, "td3", "200,000")
    assert verdict.holds is None
    assert verdict.found == "td3, HalfCheetah-v5: seeds [4] are missing"


def test_a_run_that_is_too_short_is_missing(tmp_path: Path) -> None:
    _write(tmp_path, "td3", "HalfCheetah-v5", 5000, 100_000)
    _write(tmp_path, "sb3-td3", "HalfCheetah-v5", 5000, 200_000)
    assert _verdict(tmp_path, "td3", "100,000").holds
    assert _verdict(tmp_path, "td3", "200,000").holds is None


def test_where_five_seeds_fail_ten_decide_if_both_sides_have_them(tmp_path: Path) -> None:
    _write(tmp_path, "td3", "Walker2d-v5", 1010, 200_000)
    _write(tmp_path, "ddpg", "Walker2d-v5", 1000, 200_000)
    assert _verdict(tmp_path, "walker", "Walker2d").holds is False
    for label, level in [("td3", 2000), ("ddpg", 1000)]:
        for seed in range(5, 10):
            text = "".join(f"{step},{level}\n" for step in range(20_000, 200_001, 20_000))
            table = tmp_path / f"{label}-Walker2d-v5-{seed}.csv"
            table.write_text("steps,return_mean\n" + text)
    verdict = _verdict(tmp_path, "walker", "Walker2d")
    assert verdict.holds
    assert verdict.found.startswith("seeds 0 to 4: IQM 1010 and 1000;")
    (tmp_path / "ddpg-Walker2d-v5-9.csv").unlink()
    assert _verdict(tmp_path, "walker", "Walker2d").holds is False


@pytest.mark.parametrize(("upper", "holds"), [(2000, True), (1010, False)])
def test_an_order_must_be_clear(tmp_path: Path, upper: float, holds: bool) -> None:
    _write(tmp_path, "td3", "Walker2d-v5", upper, 200_000)
    _write(tmp_path, "ddpg", "Walker2d-v5", 1000, 200_000)
    assert _verdict(tmp_path, "walker", "Walker2d").holds is holds


def test_solved_means_four_of_five_by_50_000_steps(tmp_path: Path) -> None:
    env = "InvertedPendulum-v5"
    _write(tmp_path, "td3", env, 960, 50_000)  # 864, 931, 960, 989, 1056
    verdict = _verdict(tmp_path, "solved", env)
    assert verdict.holds is False
    assert verdict.found == "3 of 5: 864, 931.2, 960, 988.8, 1056"
    _write(tmp_path, "td3", env, 990, 50_000)
    assert _verdict(tmp_path, "solved", env).holds


def test_what_was_reached_later_does_not_count(tmp_path: Path) -> None:
    _write(tmp_path, "td3", "Reacher-v5", -7.0, 50_000)
    for file in tmp_path.glob("*.csv"):
        file.write_text(file.read_text() + "55000,-3.0\n")
    assert _verdict(tmp_path, "solved", "Reacher").holds is False


def test_the_report_fails_with_the_parts_that_were_asked_for(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    _write(tables, "td3", "Walker2d-v5", 1000, 200_000)
    _write(tables, "ddpg", "Walker2d-v5", 1000, 200_000)
    words = ["--output", str(tables), "--report-only"]
    result = CliRunner().invoke(main, ["walker", *words])
    assert result.exit_code == 1
    assert "**fails**" in (tables / "gates.md").read_text()
    _write(tables, "td3", "Walker2d-v5", 2000, 200_000)
    assert CliRunner().invoke(main, ["walker", *words]).exit_code == 0
    assert CliRunner().invoke(main, words).exit_code == 1  # the others are not there
