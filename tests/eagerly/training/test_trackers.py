"""Experiment trackers receive each point of the curves once and never change a run."""

from __future__ import annotations

import os
import shutil
import signal
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tensorboard.plugins.scalar.summary_v2 import scalar_pb

from eagerly import RunError, Trainer, open_run
from eagerly.storage.digests import digests
from eagerly.storage.event_log import EventLog
from eagerly.storage.wandb_log import wandb_points
from eagerly.training import assembly, trackers
from eagerly.training.callbacks import Callback, TrainerView
from eagerly.training.trackers import Tracker
from tests.helpers import python
from tests.small_runs import TrainRun, logged, scalars

SERVER: dict[str, Any] = {}  # per ID: its settings and points, and the ends of its sessions


class Notebook(Tracker):
    """A tracker that keeps everything in `SERVER`."""

    fails_in = ""

    def _start(self, settings: Any) -> None:
        assert self.fails_in != "start", "no network"
        known = SERVER.setdefault(self.id, SimpleNamespace(points=[], ends=[]))
        known.settings, known.name = settings, self.name
        self._recorded = {(tag, step) for tag, step, _ in known.points}

    def _send(self, step: int, values: Any) -> None:
        if self.fails_in == "send":
            raise SystemExit
        SERVER[self.id].points += [(tag, step, value) for tag, value in values.items()]

    def _finish(self, failed: bool) -> None:
        SERVER[self.id].ends.append(failed)
        assert self.fails_in != "end", "no network"


@pytest.fixture(autouse=True)
def _notebook(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("long") is None:
        monkeypatch.setitem(trackers._KINDS, "mlflow", Notebook)
        monkeypatch.setattr(assembly, "check_tracker", lambda track: None)
    SERVER.clear()


class Dying(Callback):
    """Ends training at a step as a second signal does: nothing is saved."""

    def on_round(self, training: TrainerView) -> None:
        if training.steps == 290:
            raise KeyboardInterrupt


def _run(path: Path, *history: dict[str, Any]) -> Any:
    return SimpleNamespace(path=path, history=[*history])


def points_of(identity: str) -> dict[tuple[str, int], float]:
    """Returns the points that the tracker received, except speed, after checking that each is
    there once."""
    sent = {(tag, step): value for tag, step, value in SERVER[identity].points}
    assert len(sent) == len(SERVER[identity].points)
    return {point: value for point, value in sent.items() if not point[0].startswith("speed/")}


def test_a_tracker_has_each_point_once_and_the_run_is_the_same(
    train: TrainRun, tmp_path: Path
) -> None:
    settings = {"checkpoint_every_steps": 200}
    train("plain", **settings)
    with pytest.raises(KeyboardInterrupt):
        train("tracked", track="mlflow", callbacks=[Dying()], **settings)
    assert {step for known in SERVER.values() for _, step, _ in known.points} == {
        *range(50, 251, 50)
    }
    train("tracked")  # resumes at step 200
    ((identity, known),) = SERVER.items()
    expected = {point: value for point, (value,) in scalars(tmp_path / "tracked").items()}
    assert points_of(identity) == expected
    assert digests(tmp_path / "tracked") == digests(tmp_path / "plain")
    assert known.ends == [True, False]
    assert known.name == "tracked"
    assert {"agent": "td3", "steps": 400, "hidden_sizes": "8"}.items() <= known.settings.items()
    assert not {"track", "memory_units", "checkpoint_every_steps"} & known.settings.keys()


def test_a_copy_and_an_overridden_run_are_new_runs_with_all_points(tmp_path: Path) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    original.mkdir()
    EventLog(original).add(10, summary=scalar_pb("a", 1.0))
    Notebook("mlflow").begin(_run(original), {}, 10)
    shutil.copytree(original, copy)
    Notebook("mlflow").begin(_run(copy), {}, 10)
    Notebook("mlflow").begin(_run(original, {"steps": 10}), {}, 10)
    Notebook("mlflow").begin(_run(original, {"steps": 10}), {}, 10)
    assert [known.name for known in SERVER.values()] == ["original", "copy", "original"]
    assert all(points_of(identity) == {("a", 10): 1.0} for identity in SERVER)


@pytest.mark.parametrize("fails_in", ["start", "send", "end"])
def test_a_failing_tracker_causes_one_warning(
    tmp_path: Path, fails_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Notebook, "fails_in", fails_in)
    tracker, run = Notebook("mlflow"), _run(tmp_path)
    with logged() as lines:
        tracker.begin(run, {}, 0)
        for step in (10, 20):
            tracker.add({"a": 1.0}, step)
        for _ in range(2):
            tracker.end()
    assert len(lines) == 1
    assert "--track mlflow failed and is not used until the run is resumed: " in lines[0]
    assert len(SERVER) == (fails_in != "start")
    for known in SERVER.values():
        assert len(known.points) == (2 if fails_in == "end" else 0)
        assert len(known.ends) == (fails_in == "end")
    # Resuming the run sends the missing points.
    monkeypatch.setattr(Notebook, "fails_in", "")
    log = EventLog(tmp_path)
    for step in (10, 20):
        log.add(step, summary=scalar_pb("a", 1.0))
    tracker = Notebook("mlflow")
    tracker.begin(run, {}, 20)
    tracker.add({"a": 0.1}, 30)
    (identity,) = SERVER
    expected = {("a", 10): 1.0, ("a", 20): 1.0, ("a", 30): float(np.float32(0.1))}
    assert points_of(identity) == expected


def test_steps_that_a_server_does_not_accept_are_skipped(tmp_path: Path) -> None:
    tracker = Notebook("mlflow")
    tracker.begin(_run(tmp_path), {}, 0)
    tracker._complete_below = 20
    for step in (10, 20):
        tracker.add({"a": 1.0}, step)
    assert points_of(tracker.id) == {("a", 20): 1.0}


def test_names_of_metrics_are_valid_in_mlflow() -> None:
    tracker = trackers.MlflowTracker("mlflow")
    names = {"losses/critic": "losses/critic", "a[0]//b (%)": "a_0_/b ___", "é/./x": "é/x"}
    assert {tag: tracker._tag(tag) for tag in names} == names


def test_nothing_is_written_if_the_package_is_missing_or_the_directory_is_not_trusted(
    train: TrainRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(track: str) -> None:
        if track:
            raise RunError("pip install")

    monkeypatch.setattr(assembly, "check_tracker", missing)
    with pytest.raises(RunError, match="pip install"):
        train("new", track="mlflow")
    assert not (tmp_path / "new").exists()
    train("run", steps=20, warmup_steps=20, track="")
    monkeypatch.undo()
    run = open_run(tmp_path / "run", None, {"track": "mlflow:http://elsewhere", "steps": 30})
    run.write()
    run.unlock()
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    run = open_run(tmp_path / "copy", None, {})
    with pytest.raises(RunError, match='send its curves to "mlflow:http://elsewhere": add --trust'):
        Trainer(run)
    assert open_run(tmp_path / "copy", None, {"track": ""}).untrusted == {}


KILLED = """
import os, signal, sys
from pathlib import Path
from eagerly.training.callbacks import Callback
from tests.small_runs import train_in

class Killed(Callback):
    def on_round(self, training):
        if training.steps == 290:
            os.kill(os.getpid(), signal.SIGKILL)

train_in(Path(sys.argv[1]), track=sys.argv[2], checkpoint_every_steps=200, callbacks=[Killed()])
"""


@pytest.mark.long
@pytest.mark.parametrize("kind", ["wandb", "mlflow"])
def test_a_killed_run_continues_in_the_tracker_with_each_point_once(
    train: TrainRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    if find_spec(kind) is None:
        pytest.skip(f"{kind} is not installed: pip install eagerly[{kind}]")
    for name, value in {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}.items():
        monkeypatch.setenv(name, value)
    for name in ("WANDB_DIR", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    run = tmp_path / "run"
    done = python("-c", KILLED, str(run), kind, cwd=Path(__file__).parents[3])
    assert done.returncode == -signal.SIGKILL, done.stderr
    train()
    expected = set(scalars(run))
    found: Counter[tuple[str, int]] = Counter()
    if kind == "wandb":
        sessions = [*tmp_path.glob("wandb/offline-run-*/*.wandb")]
        assert len(sessions) == len({path.name for path in sessions}) + 1 == 2
        for path in sessions:
            found.update(point for point in wandb_points(path) if point[0][0] != "_")
    else:
        from mlflow.tracking import MlflowClient

        client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
        (known,) = client.search_runs([client.get_experiment_by_name("eagerly").experiment_id])
        assert (known.info.run_name, known.info.status) == ("run", "FINISHED")
        assert known.data.params["steps"] == "400"
        for tag in known.data.metrics:
            found.update(
                (tag, each.step) for each in client.get_metric_history(known.info.run_id, tag)
            )
    assert {point for point in found if not point[0].startswith("speed/")} == expected
    assert set(found.values()) == {1}
    assert not {"wandb", "mlflow.db", "mlruns"} & set(os.listdir(run))
