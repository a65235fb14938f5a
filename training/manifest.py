"""The manifest of a checkpoint: what belongs together, under its own checksum."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from eagerly.training.errors import RunError

FORMAT = 1


@dataclass(frozen=True)
class Segment:
    """The transitions `start` to `stop`, counted over the whole run, in one file."""

    start: int
    stop: int
    path: str


@dataclass(frozen=True)
class Manifest:
    """What one checkpoint consists of. Paths are relative to the run directory.

    Attributes:
        steps: Environment steps done.
        updates: Updates done.
        parts: Size and checksum of every file that belongs to it.
        replay: The segments that together hold the replay buffer.
        best: The file of the best policy, if there was an evaluation.
        lengths: Bytes that event files and tables had: what a continued run cuts them back to.
        state: Counters and random states, as JSON.
        conditions: What bit-exact continuation relies on: versions, threads, device.
    """

    steps: int
    updates: int
    parts: dict[str, dict[str, Any]]
    replay: tuple[Segment, ...]
    best: str | None
    lengths: dict[str, int]
    state: dict[str, Any]
    conditions: dict[str, Any]

    @property
    def in_round(self) -> bool:
        """Whether a signal stopped the run inside a round, with calls still owed."""
        return bool(self.state["in_round"])

    @property
    def folder(self) -> str:
        """The checkpoint's own directory."""
        return folder_name(self.steps, self.updates)


def folder_name(steps: int, updates: int) -> str:
    """Names the directory of a checkpoint; names sort as the checkpoints came."""
    return f"checkpoints/{steps:012d}-{updates:012d}"


def encoded(manifest: Manifest) -> bytes:
    """Writes a manifest as JSON."""
    document = {"format": FORMAT, **vars(manifest)}
    document["replay"] = [vars(segment) for segment in manifest.replay]
    return json.dumps({"manifest": document, "sha256": _checksum(document)}, indent=1).encode()


def decoded(content: bytes) -> Manifest:
    """Reads a manifest.

    Raises:
        ValueError, KeyError, TypeError: If it is not one, or not as it was written.
        RunError: If a newer eagerly wrote it.
    """
    outer = json.loads(content)
    document = outer["manifest"]
    if _checksum(document) != outer["sha256"]:
        raise ValueError("the manifest does not match its checksum")
    if document.pop("format") > FORMAT:
        raise RunError("the checkpoint was written by a newer eagerly: upgrade to continue it")
    document["replay"] = tuple(Segment(**segment) for segment in document["replay"])
    return Manifest(**document)


def _checksum(document: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
