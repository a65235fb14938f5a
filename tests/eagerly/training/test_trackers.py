"""Experiment trackers receive each point of the curves once and never change a run."""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import signal
import struct
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest
from tensorboard.plugins.scalar.summary_v2 import scalar_pb

from eagerly import RunError, Trainer, open_run
from eagerly.storage.digests import digests
from eagerly.storage.event_log import EventLog
from eagerly.training import assembly
from eagerly.training.callbacks import Callback, TrainerView
from eagerly.training.mlflow_tracker import _create, _ready, metric_name
from eagerly.training.trackers import Tracker
from eagerly.training.wandb_tracker import _records, wandb_points
from tests.helpers import python
from tests.small_runs import TrainRun, logged, scalars

SERVER: dict[str, Any] = {}  # per ID: its settings and points, and the ends of its sessions


class Notebook:
    """A session of a tracker that keeps everything in `SERVER`."""

    fails_in = ""
    error: type[BaseException] = SystemExit
    refused_below = 0

    def __init__(self, path: Path, run_id: str, target: str, settings: Any) -> None:
        self._fail("start")
        self._known = SERVER.setdefault(run_id, SimpleNamespace(points=[], ends=[]))
        self._known.settings, self._known.name = settings, path.name

    def _fail(self, where: str) -> None:
        if self.fails_in == where:
            raise self.error

    def has(self, tag: str, step: int) -> bool:
        known = {(name, at) for name, at, _ in self._known.points}
        return step < self.refused_below or (tag, step) in known

    def send(self, values: Any, step: int) -> None:
        self._fail("send")
        self._known.points += [(tag, step, value) for tag, value in values.items()]

    def finish(self, *, failed: bool) -> None:
        self._known.ends.append(failed)
        self._fail("end")


@pytest.fixture(autouse=True)
def _notebook(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("long") is None:
        module = SimpleNamespace(Session=Notebook)
        monkeypatch.setitem(sys.modules, "eagerly.training.mlflow_tracker", module)
        monkeypatch.setattr(assembly, "check_tracker", lambda track: None)
    SERVER.clear()


class Dying(Callback):
    """Ends training at a step as a second signal does: nothing is saved."""

    def on_round(self, training: TrainerView) -> None:
        if training.steps == 290:
            raise KeyboardInterrupt


class Failing(Callback):
    """Raises an exception, after which the run is saved."""

    def on_round(self, training: TrainerView) -> None:
        raise ValueError


def test_an_error_in_a_callback_marks_the_run_as_failed(train: TrainRun) -> None:
    with pytest.raises(RunError, match=r"checkpoint saved: Failing\.on_round raised"):
        train(steps=50, track="mlflow", callbacks=[Failing()])
    (known,) = SERVER.values()
    assert known.ends == [True]


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


def _begun(path: Path, *history: dict[str, Any]) -> Tracker:
    tracker = Tracker("mlflow")
    tracker.begin(_run(path, *history), {})
    return tracker


def _logged_point(path: Path, step: int) -> None:
    EventLog(path).add(step, summary=scalar_pb("a", 1.0))


def test_a_copy_and_an_overridden_run_are_new_runs_with_all_points(tmp_path: Path) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    original.mkdir()
    _logged_point(original, 10)
    _begun(original)
    shutil.copytree(original, copy)
    _begun(copy)
    _begun(original, {"steps": 10})
    _begun(original, {"steps": 10})
    assert [known.name for known in SERVER.values()] == ["original", "copy", "original"]
    assert all(points_of(identity) == {("a", 10): 1.0} for identity in SERVER)


def test_a_point_that_occurs_twice_in_the_event_files_is_sent_once(tmp_path: Path) -> None:
    for _ in range(2):
        _logged_point(tmp_path, 10)
    tracker = _begun(tmp_path)
    tracker.add({"a": 1.0}, 10)
    (identity,) = SERVER
    assert points_of(identity) == {("a", 10): 1.0}


@pytest.mark.parametrize("fails_in", ["start", "send", "end"])
def test_a_failing_tracker_causes_one_warning_and_is_closed(
    tmp_path: Path, fails_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Notebook, "fails_in", fails_in)
    with logged() as lines:
        tracker = _begun(tmp_path)
        for step in (10, 20):
            tracker.add({"a": 1.0}, step)
        for _ in range(2):
            tracker.end()
    assert len(lines) == 1
    assert "--track mlflow failed and is not used until the run is resumed: " in lines[0]
    assert len(SERVER) == (fails_in != "start")
    for known in SERVER.values():
        assert len(known.points) == (2 if fails_in == "end" else 0)
        assert known.ends == [fails_in == "send"]
    # Resuming the run sends the missing points.
    monkeypatch.setattr(Notebook, "fails_in", "")
    for step in (10, 20):
        _logged_point(tmp_path, step)
    tracker = _begun(tmp_path)
    tracker.add({"a": 0.1}, 30)
    (identity,) = SERVER
    expected = {("a", 10): 1.0, ("a", 20): 1.0, ("a", 30): float(np.float32(0.1))}
    assert points_of(identity) == expected


@pytest.mark.parametrize("fails_in", ["start", "send", "end"])
def test_a_tracker_passes_interruptions_on(
    tmp_path: Path, fails_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Notebook, "error", KeyboardInterrupt)
    monkeypatch.setattr(Notebook, "fails_in", fails_in)

    def session() -> None:
        tracker = _begun(tmp_path)
        tracker.add({"a": 1.0}, 10)
        tracker.end()

    with logged() as lines, pytest.raises(KeyboardInterrupt):
        session()
    assert lines == []


def test_steps_that_a_server_does_not_accept_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Notebook, "refused_below", 20)
    tracker = _begun(tmp_path)
    for step in (10, 20):
        tracker.add({"a": 1.0}, step)
    (identity,) = SERVER
    assert points_of(identity) == {("a", 20): 1.0}


def test_a_wandb_session_asks_for_no_key_and_skips_steps_before_the_newest_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[int, dict[str, float]]] = []
    settings: dict[str, Any] = {}

    def init(**given: Any) -> Any:
        assert sys.stdin.name == os.devnull
        settings.update(given["settings"])
        log = lambda values, step: sent.append((step, values))  # noqa: E731
        return SimpleNamespace(offline=False, starting_step=20, log=log)

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init, Settings=dict))
    stdin = sys.stdin
    tracker = Tracker("wandb")
    tracker.begin(_run(tmp_path), {})
    assert sys.stdin is stdin
    assert settings == {"console": "off", "finish_timeout": 60, "finish_timeout_raises": True}
    for step in (10, 20, 20):
        tracker.add({"a": 1.0}, step)
    assert sent == [(20, {"a": 1.0})]


def test_names_of_metrics_are_valid_in_mlflow_and_distinct() -> None:
    same = ["losses/critic", "a b", "x:y", "é/x"]
    assert [metric_name(tag) for tag in same] == same
    others = ["a[0]", "a(0)", "a//b", "a/b/", "/a", "../a", ".", "é/./x"]
    names = [metric_name(tag) for tag in others]
    assert names[0].startswith("a_0_-")
    assert len({*names, *same}) == len(names) + len(same)
    for name in names:
        assert re.fullmatch(r"[\w\-. :/]+", name)
        assert posixpath.normpath(name) == name
        assert not name.startswith(("/", ".."))


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


def test_records_of_a_session_are_read_across_blocks_up_to_the_first_incomplete_one(
    tmp_path: Path,
) -> None:
    def fragment(content: bytes, kind: int) -> bytes:
        return struct.pack("<IHB", 0, len(content), kind) + content

    size = 2**15
    first = b":W&B..." + fragment(b"one", 1)
    fill = size - len(first) - 7
    blocks = first + fragment(b"a" * fill, 2) + fragment(b"b" * (size - 7), 3) + fragment(b"c", 4)
    blocks += fragment(b"two", 1)
    expected = [b"one", b"a" * fill + b"b" * (size - 7) + b"c", b"two"]
    path = tmp_path / "run.wandb"
    for torn in (b"", fragment(b"three", 1)[:-1], bytes(20), b":"):
        path.write_bytes(blocks + torn)
        with path.open("rb") as file:
            assert list(_records(file)) == expected
    path.write_bytes(blocks[:size])
    with path.open("rb") as file:
        assert list(_records(file)) == expected[:1]


def test_a_damaged_file_is_read_up_to_the_first_damaged_record(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    from wandb.proto.wandb_internal_pb2 import Record

    def fragment(step: int) -> bytes:
        record = Record()
        record.history.step.num = step
        record.history.item.add(key="a[0]", value_json="1.0")
        content = record.SerializeToString()
        return struct.pack("<IHB", 0, len(content), 1) + content

    records = [fragment(step) for step in (10, 20, 30)]
    records[1] = records[1][:7] + bytes(byte ^ 0xFF for byte in records[1][7:])
    path = tmp_path / "run.wandb"
    path.write_bytes(b":W&B..." + b"".join(records))
    assert wandb_points(path) == {("a[0]", 10)}


def test_a_database_appears_only_when_it_is_complete_and_replaces_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "folder" / "x%?.db"
    made: list[Path] = []

    def client(uri: str) -> None:
        complete = Path(unquote(uri.removeprefix("sqlite:///")))
        assert complete.parent.parent == path.parent
        assert not path.exists()
        complete.write_text("ours")
        made.append(complete)
        if other:
            path.write_text("theirs")

    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "mlflow.tracking", SimpleNamespace(MlflowClient=client))
    for other in (False, True):
        for _ in range(2):
            _create(path)
        assert path.read_text() == ("theirs" if other else "ours")
        assert list(path.parent.iterdir()) == [path]
        path.unlink()
    assert len(made) == 2


def test_a_sqlite_address_waits_for_other_runs(tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy")
    (tmp_path / "a b.db").touch()
    uri = f"sqlite:///{tmp_path}/a%20b.db"
    assert _ready(uri) == f"{uri}?timeout=60"
    assert _ready(f"{uri}?x=1") == f"{uri}?x=1&timeout=60"
    assert _ready(f"{uri}?timeout=5") == f"{uri}?timeout=5"
    assert _ready("sqlite://") == "sqlite://?timeout=60"
    assert _ready("sqlite:///:memory:") == "sqlite:///:memory:?timeout=60"


KILLED = """
import os, signal, sys
from pathlib import Path
from eagerly.training.callbacks import Callback
from tests.small_runs import train_in

class Killed(Callback):
    def on_round(self, training):
        if training.steps == 290:
            os.kill(os.getpid(), signal.SIGKILL)

train_in(Path("run"), track=sys.argv[1], checkpoint_every_steps=200, callbacks=[Killed()])
"""
# Both run in their own processes, because their bits can differ from those in the test process.
CONTINUED = """
from pathlib import Path
from tests.small_runs import train_in

train_in(Path("run"))
train_in(Path("plain"), checkpoint_every_steps=200)
"""


@pytest.mark.long
@pytest.mark.parametrize("kind", ["wandb", "mlflow"])
def test_a_killed_run_continues_in_the_tracker_with_each_point_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    if find_spec(kind) is None:
        pytest.skip(f"{kind} is not installed: pip install eagerly[{kind}]")
    for name, value in {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}.items():
        monkeypatch.setenv(name, value)
    for name in ("WANDB_DIR", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    run = tmp_path / "run"
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    done = python("-c", KILLED, kind, cwd=tmp_path)
    assert done.returncode == -signal.SIGKILL, done.stderr
    done = python("-c", CONTINUED, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "failed" not in done.stderr
    assert digests(run) == digests(tmp_path / "plain")
    EventLog(run).add(400, summary=scalar_pb("a[0]", 1.0))
    for _ in range(2):
        tracker = Tracker(kind)
        tracker.begin(_run(run), {})
        tracker.end()
    named = metric_name if kind == "mlflow" else str
    expected = {(named(tag), step) for tag, step in scalars(run)}
    found: Counter[tuple[str, int]] = Counter()
    if kind == "wandb":
        import wandb

        wandb.teardown()  # completes the files
        sessions = [*tmp_path.glob("wandb/offline-run-*/*.wandb")]
        assert (len(sessions), len({path.name for path in sessions})) == (4, 1)
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
