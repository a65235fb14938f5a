"""Callbacks receive all events, can stop a run, and end it with a checkpoint if they raise."""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eagerly import Callback, ProgressBar, RunError, Trainer, open_run
from eagerly.environments.group import Rollout
from eagerly.errors import UsageError
from eagerly.storage.config import RunConfig
from eagerly.storage.listing import runs_below
from eagerly.training.callback_runner import CallbackRunner
from eagerly.training.callbacks import ProgressReports, TrainerView
from eagerly.training.evaluation import Evaluation
from eagerly.training.summaries import Summaries
from tests.eagerly.training.test_trainer import _same
from tests.small_runs import SMALL, TrainRun, scalars


class Diary(Callback):
    """Records each event with the number of steps, or of updates for "update"."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, int]] = []

    def on_begin(self, training: TrainerView) -> None:
        self.heard.append(("begin", training.steps))

    def on_rollout(self, training: TrainerView, rollout: Rollout) -> None:
        assert rollout.rewards.shape == (1, training.run.config.num_envs)
        self.heard.append(("rollout", training.steps))

    def on_update(self, training: TrainerView, metrics: Any) -> None:
        assert np.isfinite(metrics["losses/critic"]).all()
        self.heard.append(("update", training.updates))

    def on_evaluation(self, training: TrainerView, evaluation: Evaluation, is_best: bool) -> None:
        assert (evaluation.returns.mean() == training.best_return) == is_best
        self.heard.append(("evaluation", training.steps))

    def on_round(self, training: TrainerView) -> None:
        self.heard.append(("round", training.steps))

    def on_checkpoint(self, training: TrainerView) -> None:
        self.heard.append(("checkpoint", training.steps))

    def on_end(self, training: TrainerView) -> None:
        self.heard.append(("end", training.steps))


def trained(run: Path, *callbacks: Callback, **settings: Any) -> Trainer:
    given = settings if (run / "config.json").exists() else SMALL | settings
    with Trainer(open_run(run, "td3", given), callbacks) as trainer:
        trainer.train()
    return trainer


def test_callbacks_receive_all_events_in_order(tmp_path: Path) -> None:
    diary = Diary()
    settings = {"warmup_steps": 2, "replay_ratio": 0.5, "evaluate_every_steps": 4, "num_envs": 2}
    trained(tmp_path / "run", diary, **settings, steps=8, checkpoint_every_steps=6)
    assert diary.heard == [
        ("begin", 0),
        *[("rollout", 2), ("round", 2)],
        *[("rollout", 4), ("update", 1), ("evaluation", 4), ("round", 4)],
        *[("rollout", 6), ("update", 2), ("round", 6), ("checkpoint", 6)],
        *[("rollout", 8), ("update", 3), ("evaluation", 8), ("round", 8), ("checkpoint", 8)],
        ("end", 8),
    ]


class StopsAt(Callback):
    """Stops the run when the callback method `event` is first called at or after a given step."""

    def __init__(self, step: int, event: str) -> None:
        self._step = step
        setattr(self, event, self._stop)

    def _stop(self, training: TrainerView, *_: Any) -> None:
        if training.steps >= self._step:
            training.stop("enough")


class Logs(Callback):
    """Writes the rewards and the number of each call of the train body to two curves."""

    def on_rollout(self, training: TrainerView, rollout: Rollout) -> None:
        training.log("reward", rollout.rewards.mean())

    def on_update(self, training: TrainerView, metrics: Any) -> None:
        training.log("updates", training.updates)


# Each of the 4 steps after the warm-up requires two updates.
BRIEF: dict[str, Any] = {
    "replay_ratio": 2.0,
    "warmup_steps": 50,
    "steps": 54,
    "hidden_sizes": (8,),
    "summarize_every_steps": 3,
}


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    """A run that was not stopped by a callback."""
    return trained(tmp_path_factory.mktemp("straight") / "run", Logs(), **BRIEF)


@pytest.mark.parametrize("event", ["on_rollout", "on_update", "on_round"])
def test_a_run_stopped_by_a_callback_resumes_exactly(
    tmp_path: Path, straight: Trainer, event: str
) -> None:
    stopped = trained(tmp_path / "run", Logs(), StopsAt(52, event), **BRIEF)
    assert (stopped.steps, stopped.stop_reason, stopped.finished) == (52, "enough", False)
    assert stopped.updates == {"on_rollout": 2, "on_update": 3, "on_round": 4}[event]
    again = trained(tmp_path / "run", Logs())
    _same(again, straight)  # also the curves
    assert scalars(tmp_path / "run")["custom/updates", 54] == [5.5]  # calls 3 to 8
    assert (again.stop_reason, again.finished) == ("steps", True)


class Fails(Callback):
    """Raises an exception at step 52, or calls a method that callbacks must not call."""

    def __init__(self, fault: BaseException | str) -> None:
        self._fault = fault

    def on_rollout(self, training: TrainerView, rollout: Rollout) -> None:
        if training.steps == 52:
            if isinstance(self._fault, str):
                getattr(training, self._fault)()
            else:
                raise self._fault


@pytest.mark.parametrize("method", ["on_step", "_on_step"])
def test_a_callback_with_an_unknown_method_is_rejected(tmp_path: Path, method: str) -> None:
    class Outdated(Callback): ...

    setattr(Outdated, method, lambda self: None)
    with pytest.raises(RunError, match=rf"Outdated.{method} would never be .* on_rollout, "):
        trained(tmp_path / "run", Outdated(), **BRIEF)
    assert trained(tmp_path / "run", **BRIEF).finished  # the directory is not locked


@pytest.mark.parametrize("wrong", [Callback(), Callback, [Callback], [object()]])
def test_callbacks_that_are_not_a_list_of_objects_are_rejected(wrong: Any) -> None:
    with pytest.raises(
        UsageError,
        match=r"must be a list of objects .*eagerly\.Callback, .*; got .*(Callback|object object)",
    ):
        CallbackRunner(wrong)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (OSError("no route to the dashboard"), "raise self._fault\nOSError: no route to the d"),
        (SystemExit(3), "SystemExit: 3"),
        (GeneratorExit(), "GeneratorExit"),
        ("train", r"RunError: train\(\) is running: callbacks must not call it; use stop\(\)"),
    ],
)
def test_an_exception_in_a_callback_ends_the_run_with_a_checkpoint_and_a_traceback(
    tmp_path: Path, straight: Trainer, fault: BaseException | str, told: str
) -> None:
    diary = Diary()
    with pytest.raises(
        RunError,
        match=r"(?s)stopped after step 52, checkpoint saved: Fails.on_rollout raised\nTraceback.*"
        + told,
    ):
        trained(tmp_path / "run", Logs(), Fails(fault), diary, **BRIEF)
    assert diary.heard[-1] == ("round", 51)  # no callback is called afterwards
    if isinstance(fault, str | OSError):
        _same(trained(tmp_path / "run", Logs()), straight)


class View(TrainerView):
    """A trainer that only records why it is stopped."""

    def __init__(self) -> None:
        self.stopped: list[str] = []

    def stop(self, reason: str) -> None:
        self.stopped.append(reason)


@pytest.mark.parametrize(
    "call", [lambda view: view.set_env_kwargs(drag=2), lambda view: view.log("drag", 2)]
)
def test_only_methods_that_a_resumed_run_repeats_change_a_run(call: Callable[[View], None]) -> None:
    class Calls(Callback):
        def on_checkpoint(self, training: Any) -> None:
            call(training)

    view, runner = View(), CallbackRunner([Calls()])
    runner.call("on_checkpoint", view)
    assert view.stopped == ["Calls.on_checkpoint raised RunError"]
    with pytest.raises(RunError, match=r"must be called in on_rollout, .* or on_round; got on_che"):
        runner.check(3)


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_numbers_for_curves_must_be_finite(value: float) -> None:
    with pytest.raises(ValueError, match=r"log: drag must be a finite number; got (nan|-inf)"):
        Summaries(RunConfig(env="x")).log_value("drag", value)
    with pytest.raises(ValueError, match=r"log: a name must be valid Unicode; got 'caf\\udce9'"):
        Summaries(RunConfig(env="x")).log_value(os.fsdecode(b"caf\xe9"), 1.0)


def test_the_progress_bar_shows_steps_and_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    trained(tmp_path / "run", ProgressBar(), steps=50, warmup_steps=50, evaluate_every_steps=90)
    assert screen.getvalue() == ""  # `screen` is no terminal
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    trained(tmp_path / "run", ProgressBar(), steps=60)
    assert "60/60" in screen.getvalue()
    monkeypatch.delitem(sys.modules, "ipykernel")
    trained(tmp_path / "run", ProgressBar(disable=False), steps=100)
    assert "100/100" in screen.getvalue()
    assert "evaluation -" in screen.getvalue()


# --- stop at a return ---------------------------------------------------------------------------


def test_a_run_finishes_once_an_evaluation_reaches_the_return(
    train: TrainRun, tmp_path: Path
) -> None:
    bandit = {"env": "Long-v0", "evaluate_every_steps": 60}  # its return is always 40
    trainer = train(**bandit, stop_at_return=40.0)
    assert (trainer.steps, trainer.finished) == (180, True)  # the first evaluation after an update
    (found,) = runs_below(tmp_path)
    assert (found.state, found.steps) == ("finished", 180)
    assert train(steps=400).steps == 180
    straight = train("straight", **bandit, steps=240)
    assert straight.steps == 240
    _same(train(stop_at_return=41.0, steps=240), straight)


def test_a_run_that_ends_before_it_learns_is_reported_by_the_packages_logger(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for steps in (100, 101):
        run = open_run(tmp_path / str(steps), "td3", SMALL | {"steps": steps, "warmup_steps": 100})
        with caplog.at_level(logging.INFO, "eagerly"), Trainer(run):
            pass
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("eagerly.training.assembly", "WARNING")
    assert record.getMessage() == (
        "all 100 steps are random and nothing is learned: reduce --warmup-steps, which is 100 "
        "(preset defaults: the defaults)"
    )


def test_progress_reports_stop_the_run_once_nobody_reads_them(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    settings = SMALL | {"evaluate_every_steps": 100, "warmup_steps": 400}
    with Trainer(
        open_run(tmp_path / "run", "td3", settings), [ProgressReports(write_end, seconds=0)]
    ) as trainer:
        trainer.train()
    lines = os.read(read_end, 65536).decode().splitlines()
    assert lines[:3] == ["0", "1", "2"]
    assert lines[-1] == "400"
    evaluations = [line for line in lines if " " in line]
    assert [line.split()[:2] for line in evaluations] == [
        [str(steps), "evaluation"] for steps in (100, 200, 300, 400)
    ]
    os.close(read_end)
    with Trainer(
        open_run(tmp_path / "run", None, {"steps": 500}), [ProgressReports(write_end)]
    ) as trainer:
        trainer.train()
        assert (trainer.steps, trainer.finished) == (400, False)
        assert trainer.stop_reason == "the parent process has ended"
    os.close(write_end)


def test_unread_progress_reports_do_not_block_the_run(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    with suppress(BlockingIOError):
        while True:
            os.write(write_end, bytes(4096))
    settings = SMALL | {"steps": 50, "warmup_steps": 400}
    run = open_run(tmp_path / "run", "td3", settings)
    with Trainer(run, [ProgressReports(write_end, seconds=0)]) as trainer:
        trainer.train()
        assert trainer.finished
    os.close(read_end)
    os.close(write_end)
