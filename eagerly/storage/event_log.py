"""Writes the TensorBoard event files of a run, and reads scalars and wall times from them.

Runs do not use `tf.summary.create_file_writer`, because it loses points when the disk is full: it
leaves a partial record, and TensorBoard stops reading there. In an experiment with 40 points, 30 of
them written while the disk was full, only 5 points remained readable. `EventLog` kept all 40.
"""

from __future__ import annotations

import io
import math
import re
import secrets
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c
from tensorboard.summary.writer.record_writer import RecordWriter
from tensorboard.util.tensor_util import make_ndarray

from eagerly.storage.append_log import AppendLog
from eagerly.storage.files import RunFiles

_EVENTS = "events.out.tfevents."
_VERSION = "brain.Event:2"  # without it, TensorBoard drops points with repeated steps
_TAG = "evaluation/return_mean"
_LARGEST = 2**20  # bytes; a decoded record can take 50 times its size
_TICK, _LATEST = 1e-6, 1e10  # seconds: resolution and limit of times in file names
_TIME = re.compile(r"\d{1,10}(\.\d+)?(?!\d)")
_HEADER, _FOOTER = struct.Struct("<QI"), 4  # length and its checksum; content checksum


class EventLog(AppendLog):
    """The event file of this process. Its name contains the start time, which orders event files.

    Times never decrease within a run, even if the system clock does: they start after the last time
    in the directory and advance with the monotonic clock.

    Args:
        path: The run directory.
    """

    def __init__(self, path: Path) -> None:
        began = max(time.time(), _last_time(RunFiles(path)) + _TICK)
        self._offset = began - time.monotonic()
        super().__init__(path / f"{_EVENTS}{began:017.6f}.{secrets.token_hex(8)}")

    def add(self, step: int, **content: Any) -> None:
        """Appends a point. If writing fails, it is buffered; see `AppendLog.append`.

        Args:
            step: The step of the point.
            **content: The fields of its `Event`, such as `summary`.
        """
        records = io.BytesIO()
        writer = RecordWriter(records)
        now = self._offset + time.monotonic()
        if self.is_empty:
            writer.write(Event(wall_time=now, file_version=_VERSION).SerializeToString())
        event = Event(wall_time=now, step=step, **content)
        writer.write(event.SerializeToString())
        self.append(records.getvalue())


def read_scalar(run: Path, tag: str) -> tuple[dict[int, tuple[float, float]], set[str]]:
    """Reads a scalar of a run.

    Each process of a run writes its own file, starting with its first point. The time between two
    files, when nothing ran, is excluded. So is the time after a process's last point, which is
    at most the time of `summarize_every_steps` steps. Files are read up to their first damaged
    record.

    Returns:
        The finite value and the wall time in seconds of each point, by step, and the tags of all
        scalars of the run.
    """
    before, points, tags = 0.0, {}, set()
    files = RunFiles(run)
    for name in _names(files):
        first = last = None
        with suppress(OSError, ValueError), files.open(name) as file:
            for event in _events(file, files.size(name)):
                last = event.wall_time
                first = last if first is None else first
                for each in filter(_is_scalar, event.summary.value):
                    tags.add(each.tag)
                    if each.tag == tag and math.isfinite(value := _number(each)):
                        points[int(event.step)] = value, before + last - first
        if first is not None and last is not None:
            before += last - first
    return points, tags


def read_points(run: Path) -> Iterator[tuple[int, dict[str, float]]]:
    """Yields the step and the scalars of each record of a run, by tag, in the order of writing.

    Files are read up to their first damaged record.
    """
    files = RunFiles(run)
    for name in _names(files):
        with suppress(OSError, ValueError), files.open(name) as file:
            for event in _events(file, files.size(name)):
                if values := {e.tag: _number(e) for e in event.summary.value if _is_scalar(e)}:
                    yield int(event.step), values


def seconds_at_evaluations(run: Path) -> dict[int, float]:
    """Returns the wall time in seconds at each evaluation of a run, by step; see `read_scalar`."""
    return {step: seconds for step, (_, seconds) in read_scalar(run, _TAG)[0].items()}


def _is_scalar(entry: Any) -> bool:
    """Returns whether an entry of a summary is a number."""
    # Reject other shapes: a claimed shape can require any amount of memory.
    is_tensor = entry.metadata.plugin_data.plugin_name == "scalars"
    return entry.HasField("simple_value") or (is_tensor and not entry.tensor.tensor_shape.dim)


def _number(entry: Any) -> float:
    """Returns the value of a scalar, or NaN if it is invalid."""
    if entry.HasField("simple_value"):
        return entry.simple_value
    try:
        return float(make_ndarray(entry.tensor))
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return math.nan


def _names(files: RunFiles) -> list[str]:
    """Returns the names of the event files, ordered by the times in the names."""
    return [name for name in files.names() if name.startswith(_EVENTS)]


def _last_time(files: RunFiles) -> float:
    """Returns the last time in the newest event file or the time in its name; 0 without files."""
    times = {name: _TIME.match(name, len(_EVENTS)) for name in _names(files)}
    dated = [(name, float(match[0])) for name, match in times.items() if match]
    if not dated:
        return 0.0
    name, found = dated[-1]
    with suppress(OSError, ValueError), files.open(name) as file:
        last = None
        for length in _records(file, files.size(name)):
            last = file.tell(), length
        if last is not None:
            file.seek(last[0])
            event = _decoded(file.read(last[1]))
            # Ignore implausible times, which do not fit into a file name.
            if event is not None and event.wall_time < _LATEST:
                found = max(found, event.wall_time)
    return found


def _events(file: BinaryIO, size: int) -> Iterator[Any]:
    """Yields the events of a file up to the first damaged record."""
    for length in _records(file, size):
        event = _decoded(file.read(length))
        if event is None:
            return
        yield event


def _records(file: BinaryIO, size: int) -> Iterator[int]:
    """Yields the length of each intact record, with the file positioned at its content.

    Large records are skipped: they contain histograms, videos or a graph, but no evaluations.
    TensorFlow's reader is not used, because it allocates the claimed length of a record before it
    checks the file size. If memory is insufficient, it aborts the process.
    """
    while len(header := file.read(_HEADER.size)) == _HEADER.size:
        length, checksum = _HEADER.unpack(header)
        start = file.tell()
        if checksum != masked_crc32c(header[:8]) or length + _FOOTER > size - start:
            return
        if length <= _LARGEST:
            yield length
        file.seek(start + length + _FOOTER)


def _decoded(content: bytes) -> Any:
    """Returns the event in a record, or None if it is invalid."""
    try:
        event = Event.FromString(content)
    except Exception:  # the decoder can raise any exception
        return None
    return event if math.isfinite(event.wall_time) else None
