"""Event files, and the wall time of a run, which excludes pauses between processes."""

from __future__ import annotations

import math
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.plugins.scalar.summary_v2 import scalar_pb
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.util.tensor_util import make_ndarray

from eagerly.storage import event_log
from eagerly.storage.event_log import EventLog, read_scalar, seconds_at_evaluations


def _write(path: Path, events: list[tuple[float, int, str]]) -> None:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for wall_time, step, tag in events:
            event = Event(wall_time=wall_time, step=step)
            if tag:
                event.summary.value.add(tag=tag, simple_value=1.0)
            writer.write(event.SerializeToString())


def test_time_between_processes_does_not_count(tmp_path: Path) -> None:
    mean, loss = "evaluation/return_mean", "losses/critic"
    first = [(1000.0, 0, ""), (1010.0, 5000, mean), (1015.0, 6000, loss)]
    second = [(9000.0, 0, ""), (9004.0, 7000, loss), (9020.0, 10_000, mean)]
    _write(tmp_path / "events.out.tfevents.1000.host.1.0.v2", first)
    _write(tmp_path / "events.out.tfevents.9000.host.2.0.v2", second)
    assert seconds_at_evaluations(tmp_path) == {5000: 10.0, 10_000: 35.0}


def test_a_run_without_evaluations_has_no_times(tmp_path: Path) -> None:
    assert seconds_at_evaluations(tmp_path) == {}


def test_tensorboard_and_this_package_read_the_event_file(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    log.add(0)
    for step in (5000, 10_000):
        log.add(step, summary=scalar_pb("evaluation/return_mean", 0.5 * step))
    events = EventAccumulator(str(tmp_path)).Reload()
    found = events.Tensors("evaluation/return_mean")
    assert [(one.step, make_ndarray(one.tensor_proto)) for one in found] == [
        (5000, 2500.0),
        (10_000, 5000.0),
    ]
    assert events.file_version == 2.0
    assert seconds_at_evaluations(tmp_path).keys() == {5000, 10_000}
    (path,) = tmp_path.iterdir()
    assert len(list(tf.data.TFRecordDataset(str(path)))) == 4  # TensorFlow verifies both checksums


def test_scalars_are_read_and_other_summaries_are_not(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    for step, value in ((10, 0.5), (20, math.nan), (30, -2.0)):
        log.add(step, summary=scalar_pb("losses/critic", value))
    huge = scalar_pb("losses/huge", 1.0)  # 4 TB, if the claimed shape were believed
    huge.value[0].tensor.tensor_shape.dim.add(size=2**40)
    for summary in (text_pb("settings", "text"), huge):
        log.add(30, summary=summary)
    points, tags = read_scalar(tmp_path, "losses/critic")
    assert {step: value for step, (value, _) in points.items()} == {10: 0.5, 30: -2.0}
    assert 0.0 <= points[10][1] <= points[30][1] < 60.0
    assert tags == {"losses/critic"}
    for other in ("losses/huge", "settings"):
        assert read_scalar(tmp_path, other) == ({}, tags)


@pytest.mark.parametrize(
    "damaged",
    [
        TensorProto(dtype=4, int_val=[300]),  # OverflowError: too large for an unsigned byte
        TensorProto(dtype=20),  # KeyError: a type of resources
        TensorProto(dtype=7, string_val=[b"x"]),
        TensorProto(dtype=3, tensor_content=b"x"),
    ],
)
def test_invalid_scalars_are_omitted(tmp_path: Path, damaged: TensorProto) -> None:
    summary = scalar_pb("losses/critic", 1.0)
    summary.value[0].tensor.CopyFrom(damaged)
    EventLog(tmp_path).add(10, summary=summary)
    assert read_scalar(tmp_path, "losses/critic") == ({}, {"losses/critic"})


def test_a_large_record_is_skipped_without_decoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, mean = tmp_path / "events.out.tfevents.1", "evaluation/return_mean"
    _write(path, [(1000.0, 0, ""), (1003.0, 5, "x" * 2000), (1010.0, 10, mean)])
    monkeypatch.setattr(event_log, "_LARGEST", 1000)
    decoded = event_log.Event.FromString
    sizes: list[int] = []
    monkeypatch.setattr(
        event_log,
        "Event",
        SimpleNamespace(
            FromString=lambda content: (sizes.append(len(content)), decoded(content))[1]
        ),
    )
    assert seconds_at_evaluations(tmp_path) == {10: 10.0}
    assert len(sizes) == 2
    assert max(sizes) < 1000


def test_setting_back_the_clock_changes_neither_the_order_nor_the_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead, mean = time.time() + 5000, "evaluation/return_mean"
    _write(
        tmp_path / f"events.out.tfevents.{ahead:017.6f}.ff", [(ahead, 0, ""), (ahead + 7, 1, mean)]
    )
    for step in (2, 3):  # two processes start after the clock was set back by 5,000 seconds
        log = EventLog(tmp_path)
        log.add(step)
        # The clock is set back again while the first process runs.
        monkeypatch.setattr(time, "time", lambda: 0.0)
        log.add(step, summary=scalar_pb(mean, 1.0))
    seconds = seconds_at_evaluations(tmp_path)
    assert list(seconds) == [1, 2, 3]
    assert 7.0 == seconds[1] <= seconds[2] <= seconds[3] < 60.0
    times = [
        Event.FromString(record.numpy()).wall_time
        for path in sorted(tmp_path.iterdir())
        for record in tf.data.TFRecordDataset(str(path))
    ]
    assert len(times) == 8
    assert times == sorted(times)


@pytest.mark.parametrize("name", ["events.out.tfevents.1000.host.1.0.v2", "events.out.tfevents.x"])
def test_an_event_file_of_another_writer_or_without_times_is_ordered_first(
    tmp_path: Path, name: str
) -> None:
    _write(tmp_path / name, [(1e300, 0, "")])
    before = time.time()
    EventLog(tmp_path).add(1)
    (path,) = (path for path in tmp_path.iterdir() if path.name != name)
    assert before - 1 < float(path.name.split(".")[3]) < before + 60
