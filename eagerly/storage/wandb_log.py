"""Reads which points the files of W&B sessions contain.

W&B writes its records in the format of LevelDB's log: blocks of 32 KiB with fragments of records. A
killed session lacks the last, incomplete block.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_BLOCK = 2**15
_MAGIC = 7  # bytes at the beginning of the file
_HEADER = struct.Struct("<IHB")  # checksum, length and type of a fragment
_COMPLETE = (1, 4)  # types of fragments that end a record


def wandb_points(path: Path) -> set[tuple[str, int]]:
    """Returns the tag and step of each point in a `.wandb` file."""
    from wandb.proto.wandb_internal_pb2 import Record

    points = set()
    with path.open("rb") as file:
        for content in _records(file):
            history = Record.FromString(content).history
            tags = [item.key or "/".join(item.nested_key) for item in history.item]
            points |= {(tag, history.step.num) for tag in tags}
    return points


def _records(file: BinaryIO) -> Iterator[bytes]:
    """Yields the complete records of a file, up to the first incomplete one."""
    position, content = _MAGIC, b""
    while block := file.read(_BLOCK):
        while position + _HEADER.size <= len(block):
            _, length, kind = _HEADER.unpack_from(block, position)
            position += _HEADER.size
            part = block[position : position + length]
            if not kind or len(part) < length:
                return
            position += length
            content += part
            if kind in _COMPLETE:
                yield content
                content = b""
        position = 0
