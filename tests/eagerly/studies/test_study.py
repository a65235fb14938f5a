"""Search spaces, and studies that do not depend on the times at which trials end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eagerly.errors import RunError
from eagerly.studies import study as study_module
from eagerly.studies.space import Dimension, read_space
from eagerly.studies.study import (
    COMPLETE,
    FAILED,
    PRUNED,
    RUNNING,
    Study,
    Trial,
    described,
    require_optuna,
    score_of,
)

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


def write(study: Study, trial: Trial, rows: int) -> None:
    """Writes the first rows of the evaluations of each run of a trial."""
    for run, seed in zip(study.runs(trial.number), study.seeds, strict=True):
        run.mkdir(parents=True, exist_ok=True)
        found = returns(study, trial, seed)[:rows]
        lines = [f"{step},1,{value!r}" for step, value in zip(STEPS, found, strict=False)]
        (run / "evaluations.csv").write_text("\n".join(["steps,updates,return_mean", *lines, ""]))
        if rows == len(STEPS):
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
            write(study, trial, int(order.integers(len(trial.values), len(STEPS))) + 1)
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
    assert {PRUNED, COMPLETE} == {trial.state for trial in trials}
    later = [trial.score or -9.0 for trial in trials[8:]]
    assert np.mean(later) > np.mean([trial.score or -9.0 for trial in trials[:8]])
    other = trained(tmp_path / "other", 16, np.random.default_rng(0), **settings | {"seed": 1})
    assert other.digest(other.replayed()) not in digests


def test_values_after_the_step_at_which_a_trial_was_pruned_do_not_count(tmp_path: Path) -> None:
    study = made(tmp_path / "study")
    good = dict.fromkeys(STEPS, 0.0)
    trials = [Trial(n, study.propose(n, []).drawn, COMPLETE, good) for n in range(6)]
    last = study.propose(6, trials)
    write(study, last, 4)
    found = study.judged(last, trials)
    assert (found.state, list(found.values)) == (PRUNED, [100])
    assert study.judged(last, trials[:3]).state == COMPLETE  # too few trials to compare with


def test_the_score_is_the_mean_of_the_last_third() -> None:
    assert score_of([]) is None
    assert score_of([4.0]) == 4.0
    assert score_of([9.0, 1.0, 2.0, 4.0]) == 3.0


def test_failed_trials_are_recorded_and_do_not_stop_later_ones(tmp_path: Path) -> None:
    study = made(tmp_path / "study")
    study.record_failure(0, "the motor is on fire")
    (trial,) = study.replayed()
    assert (trial.state, trial.score) == (FAILED, None)
    assert not study.waits(1, [trial])
    assert study.propose(1, [trial]).drawn == made(tmp_path / "other").propose(1, []).drawn


def test_another_study_in_the_directory_is_rejected(tmp_path: Path) -> None:
    study = made(tmp_path / "study")
    read = Study.read(study.path)
    assert read.document() == study.document()
    assert read.propose(0, []).drawn == study.propose(0, []).drawn
    with pytest.raises(RunError, match=r"another study: its jobs is 1; got 2\. Repeat its command"):
        made(study.path, jobs=2)
    with pytest.raises(RunError, match="another study: its env is Pendulum-v1; got Hopper-v5"):
        Study(study.path, "td3", {"env": "Hopper-v5"}, SPACE, pruner="median").open()
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
        ("gamma = [0.9, 0.99]", "unknown settings: gamma. Use discount"),
        ("", "must have at least one line"),
        ("seed = [1, 2]", "seed cannot be searched: it must be a setting of the algorithm"),
        ('env = ["Pendulum-v1", "Hopper-v5"]', "env cannot be searched"),
        ("tau = [0.1]", "tau must have at least two different choices"),
        ("tau = [0.1, 0.1]", "tau must have at least two different choices"),
        ("tau = [0.1, 2.0]", "tau must be above 0 and at most 1; got 2.0"),
        ("tau = {low = 0.0, high = 1.0}", "tau must be above 0 and at most 1; got 0.0"),
        ("tau = {low = 0.2, high = 0.1}", "tau must have low < high; got 0.2 and 0.1"),
        ("tau = {low = 0.2}", "tau must be a list of choices or a range: tau = {low = 0.001"),
        ("tau = 0.1", "tau must be a list of choices or a range"),
        ("tau = {low = 0.1, high = 0.2, log = 1.5}", "log must be true or false"),
        ("tau = {low = 0.1, high = 0.2, step = 0.5}", "step must be above 0 and at most 0.1"),
        ("batch_size = {low = 8, high = 9.5}", "batch_size must be of type int; got 9.5"),
        ("layer_norm = {low = 0, high = 1}", "layer_norm must be a list of choices or a range: a"),
        ("tau = ", "cannot be read"),
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
