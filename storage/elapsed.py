"""How long a run has taken, read from its event files."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

from eagerly.storage.files import RunFiles, event_files

_TAG = "evaluation/return_mean"
_LARGEST = 2**28  # bytes of a record: of the histograms of large networks
_HEADER, _FOOTER = struct.Struct("<QI"), 4  # length and its checksum; that of the content


def seconds_at_evaluations(run: Path) -> dict[int, float]:
    """Returns the wall time at which each evaluation of a run was done, by its step.

    Every process of a run writes a file of its own, which begins with its first step: the time
    between two of them, in which nothing ran, is left out, and so is what a process did after its
    last point, `summarize_every_steps` steps at most. A file is read up to its first damage.
    """
    before, found = 0.0, {}
    files = RunFiles(run)
    for name in event_files(files):
        first = last = None
        with suppress(OSError, ValueError), files.open(name) as file:
            for event in _events(file, files.size(name)):
                first = event.wall_time if first is None else first
                last = event.wall_time
                if any(value.tag == _TAG for value in event.summary.value):
                    found[int(event.step)] = before + last - first
        if first is not None and last is not None:
            before += last - first
    return found


def _events(file: BinaryIO, size: int) -> Iterator[Any]:
    """Reads the records of an event file, as far as they are whole.

    TensorFlow's reader asks for the memory that a record claims to need before it looks whether
    the file is that long, and ends the process where there is none.
    """
    while len(header := file.read(_HEADER.size)) == _HEADER.size:
        length, checksum = _HEADER.unpack(header)
        if checksum != masked_crc32c(header[:8]) or length > _LARGEST:
            return
        if length + _FOOTER > size - file.tell():
            return
        content = file.read(length)
        file.seek(_FOOTER, 1)
        try:
            event = Event.FromString(content)
        except Exception:  # of the library that decodes it
            return
        if not math.isfinite(event.wall_time):
            return
        yield event
