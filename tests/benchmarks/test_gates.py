"""Gates (required benchmark results) hold, fail or stay undecided, depending on the tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from eagerly.benchmarks.gates import Gates, Verdict, table
from eagerly.benchmarks.grid import parts
from eagerly.benchmarks.measuring import machine
from eagerly.benchmarks.reproduce import main
from eagerly.benchmarks.reproduction import Reproduction, _settings
from tests.helpers import ROOT

SPREAD = (0.9, 0.97, 1.0, 1.03, 1.1)
WIDE = (0.5, 0.6, 1.0, 1.4, 1.5)
CHEETAH = "HalfCheetah-v5"


def _write(
    folder: Path,
    label: str,
    env: str,
    level: float,
    steps: int,
    *,
    seeds: range = range(5),
    spread: tuple[float, ...] = SPREAD,
) -> None:
    """Writes the tables of runs with 20 evaluations, one run per seed.

    The first nine evaluations score a tenth of `level`, the others score `level`. The 14th score is
    three times as high if `level` is positive. All scores are multiplied by the seed's factor in
    `spread`.
    """
    folder.mkdir(exist_ok=True)
    for seed in seeds:
        of_level = [0.1] * 9 + [1.0] * 11
        of_level[13] = 3.0 if level > 0 else 1.0
        rows = [
            f"{(number + 1) * steps // 20},{level * spread[seed % 5] * share}"
            for number, share in enumerate(of_level)
        ]
        table = folder / f"{label}-{env}-{seed}.csv"
        table.write_text("\n".join(["steps,return_mean", *rows]) + "\n")


def _verdict(folder: Path, part: str, text: str) -> Verdict:
    complete = [file.stem for file in folder.glob("*.csv")]
    (found,) = [v for v in Gates(folder, complete).verdicts() if v.part == part and text in v.claim]
    return found


@pytest.mark.parametrize(
    ("part", "ours", "other"),
    [
        ("ddpg", "ddpg", "sb3-ddpg"),
        ("td3", "td3", "sb3-td3"),
        ("vector", "td3-8-environments", "td3"),
    ],
)
@pytest.mark.parametrize(
    ("level", "spread", "holds"),
    [
        (5000, SPREAD, True),
        (4700, SPREAD, True),
        (4000, SPREAD, None),
        (4300, WIDE, None),  # the interval reaches 0, but the score is too low
        (4600, (1.0,) * 5, None),  # the score is high enough, but significantly lower
    ],
)
def test_parity_requires_nine_tenths_of_the_score_and_an_interval_that_reaches_0(
    tmp_path: Path,
    part: str,
    ours: str,
    other: str,
    level: float,
    spread: tuple[float, ...],
    holds: bool | None,
) -> None:
    _write(tmp_path, ours, CHEETAH, level, 100_000, spread=spread)
    even = spread if spread[0] == 1 else SPREAD
    _write(tmp_path, other, CHEETAH, 5000, 100_000, spread=even)
    assert _verdict(tmp_path, part, "100,000").holds is holds


def test_parity_at_200_000_steps_requires_only_nine_tenths(tmp_path: Path) -> None:
    _write(tmp_path, "td3", CHEETAH, 4600, 200_000, spread=(1.0,) * 5)
    _write(tmp_path, "sb3-td3", CHEETAH, 5000, 200_000, spread=(1.0,) * 5)
    assert _verdict(tmp_path, "td3", "200,000").holds
    _write(tmp_path, "td3", CHEETAH, 4400, 200_000, spread=(1.0,) * 5)
    assert _verdict(tmp_path, "td3", "200,000").holds is None


def test_a_longer_run_is_truncated_at_the_steps_of_the_gate(tmp_path: Path) -> None:
    _write(tmp_path, "td3", CHEETAH, 5000, 200_000)  # the first score, after 10,000 steps, is 500
    _write(tmp_path, "sb3-td3", CHEETAH, 5000, 100_000)
    assert _verdict(tmp_path, "td3", "100,000").holds is None
    assert "IQM 2000 and 5000, ratio 0.400" in _verdict(tmp_path, "td3", "100,000").found
    _write(tmp_path, "sb3-td3", CHEETAH, 5000, 200_000)
    assert _verdict(tmp_path, "td3", "100,000").holds
    assert _verdict(tmp_path, "td3", "200,000").holds
    (tmp_path / "td3-HalfCheetah-v5-4.csv").unlink()
    verdict = _verdict(tmp_path, "td3", "200,000")
    assert verdict.holds is None
    assert verdict.found == "td3, HalfCheetah-v5: seeds [4] are missing"


def test_a_run_that_is_too_short_counts_as_missing(tmp_path: Path) -> None:
    _write(tmp_path, "td3", CHEETAH, 5000, 100_000)
    _write(tmp_path, "sb3-td3", CHEETAH, 5000, 100_000)
    assert _verdict(tmp_path, "td3", "100,000").holds
    assert _verdict(tmp_path, "td3", "200,000").holds is None


def test_tables_that_do_not_match_the_grid_are_ignored(tmp_path: Path) -> None:
    _write(tmp_path, "td3", "Walker2d-v5", 2000, 200_000)
    _write(tmp_path, "ddpg", "Walker2d-v5", 1000, 200_000)
    complete = {file.stem for file in tmp_path.glob("*.csv")} - {"td3-Walker2d-v5-2"}
    (verdict,) = [v for v in Gates(tmp_path, complete).verdicts() if v.part == "walker"]
    assert verdict.found == "td3, Walker2d-v5: seeds [2] are missing"


def test_ten_seeds_decide_if_five_fail_parity(tmp_path: Path) -> None:
    _write(tmp_path, "ddpg", CHEETAH, 4000, 100_000)
    _write(tmp_path, "sb3-ddpg", CHEETAH, 5000, 100_000)
    verdict = _verdict(tmp_path, "ddpg", CHEETAH)
    assert verdict.holds is None
    assert verdict.found.startswith("fails with seeds 0 to 4: IQM 4000 and 5000, ratio 0.800")
    assert verdict.found.endswith("Decide with `make reproduce PARTS=ddpg ARGS='--seeds 5..9'`")
    _write(tmp_path, "ddpg", CHEETAH, 6000, 100_000, seeds=range(5, 10))
    assert _verdict(tmp_path, "ddpg", CHEETAH).holds is None  # sb3-ddpg still has only five seeds
    _write(tmp_path, "sb3-ddpg", CHEETAH, 5000, 100_000, seeds=range(5, 10))
    verdict = _verdict(tmp_path, "ddpg", CHEETAH)
    assert verdict.holds
    assert "Seeds 0 to 9:" in verdict.found
    _write(tmp_path, "ddpg", CHEETAH, 4000, 100_000, seeds=range(5, 10))
    assert _verdict(tmp_path, "ddpg", CHEETAH).holds is False


def test_more_seeds_do_not_change_an_ordering_gate(tmp_path: Path) -> None:
    _write(tmp_path, "td3", "Walker2d-v5", 1010, 200_000)
    _write(tmp_path, "ddpg", "Walker2d-v5", 1000, 200_000)
    _write(tmp_path, "td3", "Walker2d-v5", 9000, 200_000, seeds=range(5, 10))
    _write(tmp_path, "ddpg", "Walker2d-v5", 1000, 200_000, seeds=range(5, 10))
    assert _verdict(tmp_path, "walker", "Walker2d").holds is False


@pytest.mark.parametrize(("upper", "holds"), [(2000, True), (1010, False)])
def test_an_ordering_must_be_significant(tmp_path: Path, upper: float, holds: bool) -> None:
    _write(tmp_path, "td3", "Walker2d-v5", upper, 200_000)
    _write(tmp_path, "ddpg", "Walker2d-v5", 1000, 200_000)
    assert _verdict(tmp_path, "walker", "Walker2d").holds is holds


@pytest.mark.parametrize(("early", "holds"), [(900.0, True), (100.0, False)])
def test_the_faster_learner_ranks_higher_if_final_scores_are_equal(
    tmp_path: Path, early: float, holds: bool
) -> None:
    for seed in range(3):
        for label, first in (("td3", early), ("td3-unmasked", 100.0)):
            rows = ["steps,return_mean", f"100000,{first + seed}", "200000,1000", "300000,1000"]
            (tmp_path / f"{label}-Taxi-v4-{seed}.csv").write_text("\n".join(rows) + "\n")
    assert _verdict(tmp_path, "discrete", "unmasked").holds is holds


def test_a_task_is_solved_if_four_of_five_seeds_do_so_within_50_000_steps(tmp_path: Path) -> None:
    env = "InvertedPendulum-v5"
    _write(tmp_path, "td3", env, 320, 50_000)  # best evaluation: three times as high
    verdict = _verdict(tmp_path, "solved", env)
    assert verdict.holds is False
    assert verdict.found == "3 of 5: 864, 931.2, 960, 988.8, 1056"
    _write(tmp_path, "td3", env, 330, 50_000)
    assert _verdict(tmp_path, "solved", env).holds


@pytest.mark.parametrize(("level", "holds"), [(8400, True), (8000, False)])
def test_both_td7_runs_must_reach_a_score(tmp_path: Path, level: float, holds: bool) -> None:
    _write(tmp_path, "td7", CHEETAH, level, 100_000, seeds=range(2), spread=(1.0, 0.96))
    assert _verdict(tmp_path, "td7", "100,000").holds is holds


def test_evaluations_after_the_step_limit_are_ignored(tmp_path: Path) -> None:
    for seed in range(5):
        rows = ["steps,return_mean", "45000,-7.0", "50000,-9.0", "55000,-3.0"]
        (tmp_path / f"td3-Reacher-v5-{seed}.csv").write_text("\n".join(rows) + "\n")
    assert _verdict(tmp_path, "solved", "Reacher").found == "0 of 5: -7, -7, -7, -7, -7"
    assert _verdict(tmp_path, "solved", "Reacher").holds is False


def test_the_report_fails_only_for_selected_parts(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    words = ["--output", str(tables), "--report-only"]

    def report(*more: str) -> tuple[int, str]:
        result = CliRunner().invoke(main, [*more, *words])
        return result.exit_code, result.output

    for level in (1000, 2000):
        _write(tables, "td3", "Walker2d-v5", level, 200_000)
        _write(tables, "ddpg", "Walker2d-v5", 1000, 200_000)
        if level == 1000:
            code, output = report("walker")
            assert (code, "gates: 1 checked, 0 failed, 1 open" in output) == (1, True)
            reproduction = Reproduction(tables, tmp_path, Path, str)
            # A table counts only with its origin file.
            for cell in parts()["walker"]:
                origin = {"settings": _settings(cell), "machine": machine()}
                reproduction.origin(cell).write_text(json.dumps(origin))
            code, output = report("walker")
            assert (code, "gates: 1 checked, 1 failed, 0 open" in output) == (1, True)
            assert "**fails**" in output
    assert report("walker")[0] == 0
    assert not (tables / "gates.md").exists()  # runs of other parts are missing
    code, output = report()
    assert (code, "gates: 45 checked, 0 failed, 44 open" in output) == (1, True)


def test_the_published_verdicts_match_the_published_tables() -> None:
    shown = ROOT / "benchmarks" / "learning"
    verdicts = Gates(shown, {file.stem for file in shown.glob("*.json")}).verdicts()
    assert "\n".join(table(verdicts)) in (shown / "gates.md").read_text()
