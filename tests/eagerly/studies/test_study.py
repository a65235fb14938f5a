"""Search spaces, and studies that do not depend on the times at which trials end."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eagerly.errors import RunError
from eagerly.storage.run import open_run
from eagerly.studies import study as study_module
from eagerly.studies.sampling import require_optuna
from eagerly.studies.space import Dimension, read_space
from eagerly.studies.study import Study, record_failure
from eagerly.studies.trials import COMPLETE, FAILED, PRUNED, RUNNING, Trial, described, late_mean

SPACE = {
    "tau": Dimension("tau", 0.001, 0.1, log=True),
    "policy_delay": Dimension("policy_delay", 1, 4, is_integer=True),
    "hidden_sizes": Dimension("hidden_sizes", choices=((8, 8), (16,))),
}
STEPS = (100, 200, 300, 400)


@pytest.fixture(autouse=True)
def _finished(monkeypatch: pytest.MonkeyPatch) -> None:
    require_optuna()
    monkeypatch.setattr(study_module, "_is_finished", lambda run: (run / "done").exists())


def made(path: Path, **settings: Any) -> Study:
    found = Study(path, "td3", {"env": "Pendulum-v1"}, SPACE, **{"pruner": "median"} | settings)
    found.open()
    return found


def returns(study: Study, trial: Trial, seed: int) -> list[float]:
    """Returns the returns of a run, which depend on its settings and its seed only."""
    given = study.given(trial.drawn)
    noise = np.random.default_rng([seed, len(given["hidden_sizes"])]).normal(size=len(STEPS))
    best = -abs(np.log(given["tau"] / 0.01)) - given["policy_delay"]
    return [float(best + 0.1 * step / 100 + 0.1 * n) for step, n in zip(STEPS, noise, strict=True)]


def failing_step(trial: Trial, seed: int) -> int:
    """Returns the step at which a run fails, or a later one than the last."""
    return 250 if (trial.number + seed) % 5 == 0 else 1000


def advance(study: Study, trial: Trial, order: np.random.Generator) -> None:
    """Writes further evaluations of the runs of a trial, each a random number of them."""
    for run, seed in zip(study.runs(trial.number), study.seeds, strict=True):
        run.mkdir(parents=True, exist_ok=True)
        table = run / "evaluations.csv"
        written = len(table.read_text().splitlines()) - 1 if table.exists() else 0
        rows = int(order.integers(written, len(STEPS) + 1))
        fails_at = failing_step(trial, seed)
        found = zip(STEPS[:rows], returns(study, trial, seed), strict=False)
        lines = [f"{step},1,{value!r}" for step, value in found if step < fails_at]
        table.write_text("\n".join(["steps,updates,return_mean", *lines, ""]))
        if fails_at < STEPS[min(rows, len(STEPS) - 1)]:
            record_failure(run, "not finite")
        elif rows == len(STEPS):
            (run / "done").touch()


def trained(path: Path, count: int, order: np.random.Generator, **settings: Any) -> Study:
    """Trains a study whose runs advance in random order, and is reopened at random times."""
    study = made(path, **settings)
    trials: list[Trial] = []
    while len(trials) < count or any(trial.state == RUNNING for trial in trials):
        if order.random() < 0.1:  # a new process knows only the files
            study, trials = made(path, **settings), []
        while len(trials) < count and not study.waits(len(trials), trials):
            trials.append(study.judged(study.propose(len(trials), trials), trials))
        running = [trial for trial in trials if trial.state == RUNNING]
        if running:
            trial = running[order.integers(len(running))]
            advance(study, trial, order)
            trials[trial.number] = study.judged(trial, trials)
    return study


@pytest.mark.parametrize("settings", [{"jobs": 1}, {"jobs": 3, "seeds": (0, 4)}])
def test_a_study_does_not_depend_on_the_times_at_which_trials_end(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    digests = set()
    for number in range(3):
        study = trained(tmp_path / str(number), 16, np.random.default_rng(number), **settings)
        trials = Study.read(study.path).replayed()
        assert len(trials) == 16
        digests.add(study.digest(trials))
    assert len(digests) == 1
    assert {trial.state for trial in trials} == {PRUNED, COMPLETE, FAILED}
    later = [trial.score or -9.0 for trial in trials[8:]]
    assert np.mean(later) > np.mean([trial.score or -9.0 for trial in trials[:8]])
    other = trained(tmp_path / "other", 16, np.random.default_rng(0), **settings | {"seed": 1})
    assert other.digest(other.replayed()) not in digests


def test_values_after_the_step_at_which_a_trial_was_pruned_do_not_count(tmp_path: Path) -> None:
    study = made(tmp_path / "study")
    good = dict.fromkeys(STEPS, 0.0)
    trials = [Trial(n, study.propose(n, []).drawn, COMPLETE, good) for n in range(6)]
    last = study.propose(6, trials)
    (run,) = study.runs(6)
    run.mkdir(parents=True)
    rows = [f"{step},1,-1.0" for step in STEPS]
    (run / "evaluations.csv").write_text("\n".join(["steps,updates,return_mean", *rows, ""]))
    (run / "done").touch()
    found = study.judged(last, trials)
    assert (found.state, list(found.values)) == (PRUNED, [100])
    assert study.judged(last, trials[:3]).state == COMPLETE  # too few trials to compare with


def test_seeds_without_a_common_evaluation_are_an_error(tmp_path: Path) -> None:
    study = made(tmp_path / "study", seeds=(0, 1))
    for seed, run in enumerate(study.runs(0)):
        run.mkdir(parents=True)
        (run / "evaluations.csv").write_text(f"steps,updates,return_mean\n{1000 + seed},1,-1.0\n")
        (run / "done").touch()
    with pytest.raises(RunError, match="no evaluation at the same step, so the trial has no score"):
        study.judged(study.propose(0, []), [])


def test_the_score_is_the_mean_of_the_last_third() -> None:
    assert late_mean([]) is None
    assert late_mean([4.0]) == 4.0
    assert late_mean([9.0, 1.0, 2.0, 4.0]) == 3.0


def test_earlier_results_determine_a_trial_but_failed_trials_do_not(tmp_path: Path) -> None:
    study = made(tmp_path / "study")
    drawn = [study.propose(number, []).drawn for number in range(12)]
    known = [Trial(n, each, COMPLETE, {400: -float(n)}) for n, each in enumerate(drawn)]
    found = study.propose(12, known).drawn
    assert found != study.propose(12, [replace(known[0], values={400: -99.0}), *known[1:]]).drawn
    failed = Trial(12, found, FAILED, {400: 99.0})
    assert not study.waits(13, [*known, failed])
    assert study.waits(13, [*known, replace(failed, state=RUNNING)])
    assert made(tmp_path / "jobs", jobs=2).propose(13, [*known, failed]).drawn == (
        study.propose(13, known).drawn
    )


def test_runs_with_other_settings_than_those_of_the_trial_are_an_error(tmp_path: Path) -> None:
    study = made(tmp_path / "study")
    trial = study.propose(0, [])
    given = {"env": "Pendulum-v1", **study.given(trial.drawn), "tau": 0.5}
    open_run(study.runs(0)[0], "td3", given).write()
    with pytest.raises(RunError, match=r"seed-0 has tau 0\.5, but this trial of the study has 0\."):
        study.judged(trial, [])


def test_another_study_in_the_directory_is_rejected(tmp_path: Path) -> None:
    study = made(tmp_path / "study")
    read = Study.read(study.path)
    assert read.document() == study.document()
    assert read.propose(0, []).drawn == study.propose(0, []).drawn
    with pytest.raises(RunError, match=r"another study: its jobs is 1; got 2\. Repeat its command"):
        made(study.path, jobs=2)
    with pytest.raises(RunError, match="another study: its env is Pendulum-v1; got Hopper-v5"):
        Study(study.path, "td3", {"env": "Hopper-v5"}, SPACE, pruner="median").open()
    longer = Study(study.path, "td3", {**study.settings, "steps": 5}, SPACE, pruner="median")
    longer.open()  # studies of version 0.2 did not save steps
    longer.path = tmp_path / "longer"
    longer.open()
    longer.settings = {**study.settings, "steps": 6}
    with pytest.raises(RunError, match="another study: its steps is 5; got 6"):
        longer.open()
    longer.settings = {**study.settings, "steps": 5, "added": None}
    with pytest.raises(RunError, match="another study: its added is missing; got None"):
        longer.open()
    backwards = dict(reversed(SPACE.items()))
    Study(study.path, "td3", study.settings, backwards, pruner="median").open()
    with pytest.raises(RunError, match=r"is not a study: it has no study\.json"):
        Study.read(tmp_path)
    (study.path / "study.json").write_text('{"agent": 1}')
    with pytest.raises(RunError, match=r"study\.json cannot be read"):
        Study.read(study.path)


def test_a_space_is_read_with_the_kinds_of_the_settings(tmp_path: Path) -> None:
    path = tmp_path / "space.toml"
    path.write_text(
        "actor_learning_rate = {low = 1e-4, high = 1e-2, log = true}\n"
        "policy_delay = {low = 1, high = 4}\nbatch_size = {low = 32, high = 96, step = 32}\n"
        'hidden_sizes = [[64, 64], [256]]\nmemory = ["none", "gru"]\nlayer_norm = [true, false]'
    )
    space = read_space(path, "td3")
    study = Study(tmp_path / "study", "td3", {}, space)
    drawn = [study.given(study.propose(number, []).drawn) for number in range(20)]
    assert {each["policy_delay"] for each in drawn} == {1, 2, 3, 4}
    assert {each["batch_size"] for each in drawn} == {32, 64, 96}
    assert {each["hidden_sizes"] for each in drawn} == {(64, 64), (256,)}
    assert {each["memory"] for each in drawn} == {"none", "gru"}
    assert {each["layer_norm"] for each in drawn} == {True, False}
    rates = [each["actor_learning_rate"] for each in drawn]
    assert 1e-4 <= min(rates) < 1e-3 < max(rates) <= 1e-2
    assert described({"tau": 0.123456, "hidden_sizes": (8, 8)}) == "tau 0.1235, hidden_sizes 8,8"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("gamma = [0.9, 0.99]", r"space\.toml: unknown settings: gamma\. Use discount"),
        ("evaluation_steps_limit = [1, 2]", "evaluation_steps_limit cannot be searched"),
        ("hidden_sizes = [64, 64]", "hidden_sizes must be a list of lists, one per choice"),
        ("", "must have at least one line"),
        ("seed = [1, 2]", "seed cannot be searched: .* Pass --seeds"),
        ('env = ["Pendulum-v1", "Hopper-v5"]', "env cannot be searched"),
        ("tau = [0.1]", "tau must have at least two different choices"),
        ("tau = [0.1, 0.1]", "tau must have at least two different choices"),
        ("tau = [0.1, 2.0]", "tau must be above 0 and at most 1; got 2.0"),
        ("tau = {low = 0.0, high = 1.0}", "tau must be above 0 and at most 1; got 0.0"),
        ("tau = {low = 0.2, high = 0.1}", "tau must have low < high; got 0.2 and 0.1"),
        ("tau = {low = 0.2}", "tau must be a list of choices or a range: {low = 0.001"),
        ("tau = 0.1", "tau must be a list of choices or a range"),
        ("tau = {low = 0.1, high = 0.2, log = 1.5}", "log must be true or false"),
        ("tau = {low = 0.1, high = 0.2, step = 0.5}", "step must be above 0 and at most 0.1"),
        ("batch_size = {low = 8, high = 9.5}", "batch_size must be of type int; got 9.5"),
        ("layer_norm = {low = 0, high = 1}", "layer_norm must be a list of choices; got"),
        ("tau = ", "cannot be read"),
        ("tau = " + "[" * 5000 + "]" * 5000, "cannot be read"),
    ],
)
def test_invalid_spaces_are_rejected(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "space.toml").write_text(line)
    with pytest.raises(RunError, match=message):
        read_space(tmp_path / "space.toml", "td3")


def test_a_missing_optuna_is_reported_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(RunError, match=r"studies require Optuna: pip install 'eagerly\[tune\]'"):
        require_optuna()
