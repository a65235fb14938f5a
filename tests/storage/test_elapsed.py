"""How long a run has taken, without the time in which nothing ran."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf
from tensorboard.compat.proto.event_pb2 import Event

from eagerly.storage.elapsed import seconds_at_evaluations


def _write(path: Path, events: list[tuple[float, int, str]]) -> None:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for wall_time, step, tag in events:
            event = Event(wall_time=wall_time, step=step)
            if tag:
                event.summary.value.add(tag=tag, simple_value=1.0)
            writer.write(event.SerializeToString())


def test_the_time_between_processes_does_not_count(tmp_path: Path) -> None:
    mean, loss = "evaluation/return_mean", "losses/critic"
    first = [(1000.0, 0, ""), (1010.0, 5000, mean), (1015.0, 6000, loss)]
    second = [(9000.0, 0, ""), (9004.0, 7000, loss), (9020.0, 10_000, mean)]
    _write(tmp_path / "events.out.tfevents.1000.host.1.0.v2", first)
    _write(tmp_path / "events.out.tfevents.9000.host.2.0.v2", second)
    assert seconds_at_evaluations(tmp_path) == {5000: 10.0, 10_000: 35.0}


def test_a_run_without_evaluations_has_none(tmp_path: Path) -> None:
    assert seconds_at_evaluations(tmp_path) == {}
