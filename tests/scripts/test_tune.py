"""The command `eagerly tune`: trials as processes, failures, continuing, and the finalists."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eagerly.scripts.main import main
from eagerly.studies import study as study_module
from tests.scripts.test_seeds import _stand_in
from tests.small_runs import SMALL

# Rewards a tau of 0.01, and fails if tau is above 0.05.
TRAINS = """
import math
tau, folder = float(words("--tau")), words("--run-dir")
os.makedirs(folder, exist_ok=True)
rows = "steps,updates,return_mean\\n"
for step in (100, 200, 300, 400):
    if tau > 0.05 and seed == 0 and step == 300:
        print("Error: the weights became nan")
        sys.exit(3)
    value = -abs(math.log(tau / 0.01)) + seed / 100 + step / 1000
    rows += f"{step},1,{value!r}\\n"
    with open(f"{folder}/evaluations.csv", "w") as file:
        file.write(rows)
    os.write(report, f"{step} evaluation {value}\\n".encode())
open(f"{folder}/done", "w").close()
"""
SPACE = "tau = {low = 0.001, high = 0.1, log = true}\npolicy_delay = [1, 2]\n"
WORDS = ("--env", "Pendulum-v1", "--study", "study", "--space", "space.toml", "--no-progress")
STEPS = ("--steps", "20000")


@pytest.fixture(autouse=True)
def _there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("space.toml").write_text(SPACE)


def _tune(*words: str) -> Result:
    return CliRunner().invoke(main, ["tune", "td3", *WORDS, *STEPS, *words])


def test_a_study_continues_after_its_latest_trials_were_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(study_module, "_is_finished", lambda run: (run / "done").exists())
    _stand_in(monkeypatch, TRAINS)
    words = "--trials", "8", "--jobs", "2", "--seeds", "0..1", "--finalists", "0"
    first = _tune(*words)
    assert first.exit_code == 0, first.output
    (digest,) = re.findall(r"^digest +(\w+)$", first.output, re.M)
    listed = json.loads(CliRunner().invoke(main, ["study", "study", "--json"]).output)
    assert len(listed) == 8
    for trial in listed:
        assert (trial["state"] == "failed") == (trial["settings"]["tau"] > 0.05)
    failed = next(trial["trial"] for trial in listed if trial["state"] == "failed")
    why = Path(f"study/trials/{failed:04d}/seed-0.failed").read_text()
    assert why == "the weights became nan"
    best = listed[0]
    assert best["score"] == max(trial["score"] for trial in listed if trial["score"])
    assert [step for step, _ in best["values"]] == [100, 200, 300, 400]

    for number in (3, 5, 6, 7):
        shutil.rmtree(f"study/trials/{number:04d}")
    again = _tune(*words)
    assert f"digest        {digest}\n" in again.output
    assert again.output.count("starts, log") == 2 * 4
    assert f"digest  {digest}" in CliRunner().invoke(main, ["study", "study"]).output


def test_only_failures_that_the_settings_cause_are_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(study_module, "_is_finished", lambda run: (run / "done").exists())
    words = "--trials", "4", "--finalists", "0"
    for program, why in (
        ("sys.exit('Error: no space left on device')", "trial 0, seed 0: no space left on device"),
        ("os.kill(os.getpid(), 9)", "process killed by SIGKILL"),
        ("sys.exit(143)", "stopped by another process"),
    ):
        _stand_in(monkeypatch, program)
        result = _tune(*words)
        assert (result.exit_code, why in result.output) == (1, True), result.output
        assert "To count the trial as failed, first create study/trials/0000/seed-0.failed" in (
            result.output
        )
    assert not list(Path("study").rglob("*.failed"))
    Path("study/trials/0000/seed-0.failed").touch()
    _stand_in(monkeypatch, TRAINS.replace("tau > 0.05", "False"))
    assert "trial 0: failed\n" in _tune(*words).output
    for number in range(3):
        Path(f"study/trials/{number:04d}/seed-0.failed").touch()
    result = _tune(*words)
    assert (result.exit_code, "the first 3 trials failed" in result.output) == (1, True)


def test_a_stop_during_the_last_trial_starts_no_finalists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_module, "_is_finished", lambda run: (run / "done").exists())
    _stand_in(monkeypatch, TRAINS + "os.kill(os.getppid(), 2)")
    result = _tune("--trials", "1", "--finalists", "1")
    assert result.exit_code == 130
    assert "stopped by SIGINT: 1 of 1 trials have ended" in result.output
    assert not Path("study/final").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--tau", "0.1"), "tau is both an option and a line of space.toml: omit one"),
        (("--discount", "2"), "discount must be at least 0 and"),
        (("--jobs", "0"), "Invalid value for '--jobs'"),
        (("--seed", "1"), "No such option '--seed'"),
        (("--env", "Pendulam-v1"), "unknown environment 'Pendulam-v1'"),
        (("--steps", "900"), "must have at least 3 evaluations; got --steps 900"),
        (("--warmup-steps", "20000"), "--steps must be above --warmup-steps"),
        (("--hardware", "--evaluations", "shared", "--jobs", "2"), "environment: omit --jobs"),
        (("--seeds", "2147483645"), "seed must be at least 0 and at most 2,147,483,647; got"),
        (("--stop-at-return", "0"), "a study must not have --stop-at-return"),
        (("--evaluations", "none"), "a study scores its runs by evaluations"),
        (("--study", "run"), "--study must be the parent of the run directories; got run, which"),
    ],
)
def test_invalid_options_are_rejected_before_anything_is_written(
    words: tuple[str, ...], message: str
) -> None:
    Path("run").mkdir()
    Path("run/config.json").touch()
    result = _tune(*words)
    assert result.exit_code == 2
    assert message in result.output, result.output
    assert not Path("study").exists()
    assert not Path("run/study.json").exists()


@pytest.mark.long
def test_finalists_are_compared_and_the_best_settings_become_a_preset() -> None:
    names = ("steps", "warmup_steps", "updates_per_call", "replay_ratio", "mode", "batch_size")
    flags = [w for n in names for w in (f"--{n.replace('_', '-')}", str(SMALL[n]))]
    flags += ["--evaluate-every-steps", "100", "--evaluation-episodes", "1", "--hidden-sizes", "8"]
    more = "--trials", "3", "--jobs", "2", "--finalists", "1", "--fresh-seeds", "2"
    result = _tune(*more, *flags)
    assert result.exit_code == 0, result.output
    (winner,) = re.findall(
        r"^trial-(\d+) +mean score over 2 fresh seeds: .*; difference from ", result.output, re.M
    )
    listed = json.loads(CliRunner().invoke(main, ["study", "study", "--json"]).output)
    (trial,) = (each for each in listed if each["trial"] == int(winner))
    words = "train", "td3", "--env", "Pendulum-v1", "--preset", "study/best.toml", "--print-config"
    printed = CliRunner().invoke(main, words).output
    assert f"tau = {trial['settings']['tau']}\n" in printed
    assert f"policy_delay = {trial['settings']['policy_delay']}\n" in printed
    figures = CliRunner().invoke(main, ["study", "study", "--figures", "figures"])
    assert (figures.exit_code, len(list(Path("figures").glob("*.png")))) == (0, 3)
    words = "study", "study", "--journal", "journal.log"
    journal = CliRunner().invoke(main, [*words, "--json"])
    assert (journal.exit_code, Path("journal.log").stat().st_size > 0) == (0, True)
    assert json.loads(journal.stdout) == listed
    assert CliRunner().invoke(main, words).exit_code == 2
