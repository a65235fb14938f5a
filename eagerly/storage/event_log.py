"""The TensorBoard event files of a run: written, and read for how long the run has taken.

Runs do not use `tf.summary.create_file_writer`, because it loses points on a full disk: it leaves
part of a record in its file, and TensorBoard shows nothing after it. In an experiment with 40
points, of which 30 were written while the disk was full, 5 of its points stay readable, and all 40
of an `EventLog` (`python -m eagerly.benchmarks.full_disk`).
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

from eagerly.storage.append_log import AppendLog
from eagerly.storage.files import RunFiles

_EVENTS = "events.out.tfevents."
_VERSION = "brain.Event:2"  # without it TensorBoard drops points whose steps come again
_TAG = "evaluation/return_mean"
_LARGEST = 2**20  # bytes of a decoded record, which can take fifty times its size
_TICK, _LATEST = 1e-6, 1e10  # seconds: the resolution and the end of the times in names
_TIME = re.compile(r"\d{1,10}(\.\d+)?(?!\d)")
_HEADER, _FOOTER = struct.Struct("<QI"), 4  # length and its checksum; that of the content


class EventLog(AppendLog):
    """An event file of this process; its name holds the time, by which such files are ordered.

    Times never decrease in a run, whatever happens to the system clock: they begin after the last
    one in the directory, and advance with the monotonic clock.

    Args:
        path: The run directory.
    """

    def __init__(self, path: Path) -> None:
        began = max(time.time(), _last_time(RunFiles(path)) + _TICK)
        self._offset = began - time.monotonic()
        super().__init__(path / f"{_EVENTS}{began:017.6f}.{secrets.token_hex(8)}")

    def add(self, step: int, **content: Any) -> None:
        """Writes a point, now or as soon as there is space.

        Args:
            step: Its step.
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


def seconds_at_evaluations(run: Path) -> dict[int, float]:
    """Returns the wall time at which each evaluation of a run was done, by its step.

    Every process of a run writes a file of its own, which begins with its first step: the time
    between two of them, in which nothing ran, is left out, and so is what a process did after its
    last point, `summarize_every_steps` steps at most. A file is read up to its first damage.
    """
    before, found = 0.0, {}
    files = RunFiles(run)
    for name in _names(files):
        first = last = None
        with suppress(OSError, ValueError), files.open(name) as file:
            for event in _events(file, files.size(name)):
                last = event.wall_time
                first = last if first is None else first
                if any(value.tag == _TAG for value in event.summary.value):
                    found[int(event.step)] = before + last - first
        if first is not None and last is not None:
            before += last - first
    return found


def _names(files: RunFiles) -> list[str]:
    """Lists the event files, in the order of the times in their names."""
    return [name for name in files.names() if name.startswith(_EVENTS)]


def _last_time(files: RunFiles) -> float:
    """Returns the wall time at the end of the newest event file, or in its name; 0 without one."""
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
            # A time that a name cannot hold is no time at which a run was made.
            if event is not None and event.wall_time < _LATEST:
                found = max(found, event.wall_time)
    return found


def _events(file: BinaryIO, size: int) -> Iterator[Any]:
    """Reads the records of an event file up to the first damaged one."""
    for length in _records(file, size):
        event = _decoded(file.read(length))
        if event is None:
            return
        yield event


def _records(file: BinaryIO, size: int) -> Iterator[int]:
    """Yields the length of each whole record, with the file at the start of its content.

    Large ones are left out: they hold histograms, videos or a graph, and no evaluation.
    TensorFlow's reader asks for the memory that a record claims to need before it looks whether
    the file is that long, and ends the process where there is none.
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
    """Returns the event of a record, or None if it is not one."""
    try:
        event = Event.FromString(content)
    except Exception:  # of the library that decodes it
        return None
    return event if math.isfinite(event.wall_time) else None
