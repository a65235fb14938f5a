"""The TensorBoard event files of a run: written, and read for how long the run has taken."""

from __future__ import annotations

import io
import math
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
_LARGEST = 2**20  # bytes of a record that is decoded, which may take fifty times as many
_HEADER, _FOOTER = struct.Struct("<QI"), 4  # length and its checksum; that of the content


class EventLog(AppendLog):
    """An event file of this process; its name holds the time, by which such files are ordered.

    Args:
        path: The run directory.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path / f"{_EVENTS}{time.time():017.6f}.{secrets.token_hex(8)}")

    def add(self, step: int, **content: Any) -> None:
        """Writes a point, now or as soon as there is space.

        Args:
            step: Its step.
            **content: The fields of its `Event`, such as `summary`.
        """
        records = io.BytesIO()
        writer = RecordWriter(records)
        if self.is_empty:
            writer.write(Event(wall_time=time.time(), file_version=_VERSION).SerializeToString())
        event = Event(wall_time=time.time(), step=step, **content)
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
    for name in (name for name in files.names() if name.startswith(_EVENTS)):
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


def _events(file: BinaryIO, size: int) -> Iterator[Any]:
    """Reads the records of an event file, as far as they are whole.

    Large ones are left out: they hold histograms, videos or a graph, and no evaluation.
    TensorFlow's reader asks for the memory that a record claims to need before it looks whether
    the file is that long, and ends the process where there is none.
    """
    while len(header := file.read(_HEADER.size)) == _HEADER.size:
        length, checksum = _HEADER.unpack(header)
        if checksum != masked_crc32c(header[:8]) or length + _FOOTER > size - file.tell():
            return
        if length > _LARGEST:
            file.seek(length + _FOOTER, 1)
            continue
        content = file.read(length)
        file.seek(_FOOTER, 1)
        try:
            event = Event.FromString(content)
        except Exception:  # of the library that decodes it
            return
        if not math.isfinite(event.wall_time):
            return
        yield event
