"""Sessions of Weights & Biases, and the points that their files contain."""

from __future__ import annotations

import os
import struct
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

_PROJECT = "eagerly"  # the default
_FINISH_SECONDS = 60  # limit of the upload at the end
# Points that this process has sent offline, by ID of the run. W&B completes a file about a second
# after the end of its session, and the run may be resumed before.
_SENT: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)
# W&B's files have the format of LevelDB's log: blocks of 32 KiB with fragments of records.
_BLOCK = 2**15
_MAGIC = 7  # bytes at the beginning of the file
_HEADER = struct.Struct("<IHB")  # checksum, length and type of a fragment
_COMPLETE = (1, 4)  # types of fragments that end a record


class Session:
    """A session of W&B. Its files are in `WANDB_DIR` or next to the run directory.

    The server ignores steps before its newest one. Without a connection (`WANDB_MODE=offline`),
    each session has its own folder. A killed session loses its newest points, because W&B writes
    complete blocks, so these folders are read to find out which points they contain.
    """

    def __init__(self, path: Path, run_id: str, target: str, settings: Mapping[str, Any]) -> None:
        import wandb

        with _no_input():
            self._run = wandb.init(
                project=target or os.environ.get("WANDB_PROJECT") or _PROJECT,
                id=run_id,
                resume="allow",
                reinit="create_new",  # the calling program may have a run of its own
                name=path.name,
                group=path.parent.name or None,
                dir=os.environ.get("WANDB_DIR") or path.parent,
                config=dict(settings),
                settings=wandb.Settings(
                    console="off", finish_timeout=_FINISH_SECONDS, finish_timeout_raises=True
                ),
            )
        self._points: set[tuple[str, int]] = set()
        if self._run.offline:
            self._points = _SENT[run_id]
            folder = Path(self._run.dir).parent.parent
            for file in folder.glob(f"*run-*-{run_id}/run-{run_id}.wandb"):
                with suppress(OSError):
                    self._points |= wandb_points(file)

    def has(self, tag: str, step: int) -> bool:
        """See `trackers.Session`."""
        return step < self._run.starting_step or (tag, step) in self._points

    def send(self, values: Mapping[str, float], step: int) -> None:
        """See `trackers.Session`."""
        self._run.log(dict(values), step=step)
        self._points |= {(tag, step) for tag in values}

    def finish(self, *, failed: bool) -> None:
        """See `trackers.Session`."""
        import wandb
        from wandb.sdk import mailbox

        try:
            self._run.finish(exit_code=int(failed))
        except (ConnectionError, mailbox.HandleAbandonedError, mailbox.MailboxClosedError):
            self._points.clear()  # W&B's process has died, and its newest points are lost
            wandb.teardown()  # otherwise, W&B prints a traceback at exit
            raise


@contextmanager
def _no_input() -> Iterator[None]:
    """Prevents W&B from asking for an API key, without a time limit. It raises an error instead."""
    stdin = sys.stdin
    try:
        with open(os.devnull) as sys.stdin:
            yield
    finally:
        sys.stdin = stdin


def wandb_points(path: Path) -> set[tuple[str, int]]:
    """Returns the tag and step of each point in a file, up to its first damaged record."""
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from wandb.proto.wandb_internal_pb2 import Record

    points = set()
    with path.open("rb") as file, suppress(DecodeError):
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
