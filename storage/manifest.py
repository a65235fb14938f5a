"""The manifest of a checkpoint: what belongs together, under its own checksum."""

from __future__ import annotations

import re
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eagerly.errors import RunError
from eagerly.storage.documents import checksum, read_document, sealed, unsealed
from eagerly.storage.files import RunFiles

FORMAT = 2
# Names are compared with these before anything is opened: none leads out of the run directory.
FOLDER = re.compile(r"checkpoints/\d{12}-\d{12}")
PART = re.compile(
    rf"{FOLDER.pattern}/(networks\.(index|data-00000-of-00001)|(policy|episodes)\.npz)"
    r"|replay/\d{12}-\d{12}\.npy|policies/best-\d{12}\.npz"
)
GROWING = re.compile(r"evaluations\.csv|events\.out\.tfevents\.[\w.-]+")
_LARGEST = 10**12  # steps: what twelve digits hold
_LARGEST_FILE = 2**40


@dataclass(frozen=True)
class Segment:
    """The rows `start` to `stop` of the replay buffer, counted over the whole run, in one file."""

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
        growing: Event files and tables, with the size and the checksum that they had: what a
            continued run cuts them back to.
        state: Counters and random states, as JSON.
        conditions: What bit-exact continuation relies on: versions, threads, device.
        config: What `config.json` held; None in a run of format 1.
    """

    steps: int
    updates: int
    parts: dict[str, dict[str, Any]]
    replay: tuple[Segment, ...]
    best: str | None
    growing: dict[str, dict[str, Any]]
    state: dict[str, Any]
    conditions: dict[str, Any]
    config: dict[str, Any] | None

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
    return sealed(document)


def read_manifest(files: RunFiles, folder: str) -> Manifest:
    """Reads the manifest of a checkpoint.

    Args:
        files: Those of the run directory.
        folder: The checkpoint's own, as `folders_of` lists it.

    Raises:
        ValueError: If it is not one, or not as it was written, or names what no run has.
        OSError: If the file cannot be read.
        RunError: If a newer eagerly wrote it.
    """
    document = read_document(files, f"{folder}/manifest.json")
    document = _format_1(document) if "manifest" in document else unsealed(document)
    try:
        version = document.pop("format")
        if not isinstance(version, int):
            raise ValueError(f"its format is {version!r}")
        if version > FORMAT:
            raise RunError(
                f"{files.path / folder} was written by a newer eagerly: upgrade to continue it, or "
                "begin another --run-dir"
            )
        document["replay"] = tuple(Segment(**segment) for segment in document["replay"])
        manifest = Manifest(**document)
        _check(manifest, folder)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is not a manifest: {error!r}") from error
    return manifest


def folders_of(files: RunFiles) -> list[str]:
    """Lists the folders of checkpoints that are published, oldest first.

    Raises:
        OSError: If `checkpoints` is a link, or cannot be read.
    """
    found = (name for name in files.folders("checkpoints") if FOLDER.fullmatch(name))
    manifests = ((name, files.status(f"{name}/manifest.json")) for name in found)
    return [name for name, status in manifests if status and not stat.S_ISDIR(status.st_mode)]


def published(run: Path) -> list[Manifest]:
    """Reads the manifests of a run, oldest first; those that cannot be read are left out."""
    files, manifests = RunFiles(run), []
    with suppress(OSError):
        for folder in folders_of(files):
            with suppress(ValueError, OSError, RunError):
                manifests.append(read_manifest(files, folder))
    return manifests


def _format_1(outer: dict[str, Any]) -> dict[str, Any]:
    """Translates what runs before the first release wrote: no settings, lengths alone."""
    document = outer["manifest"]
    if not isinstance(document, dict) or checksum(document) != outer.get("sha256"):
        raise ValueError("it is not as it was written (its checksum differs)")
    lengths = document.pop("lengths", {})
    document["growing"] = {name: {"bytes": length} for name, length in lengths.items()}
    return {**document, "config": None}


def _check(manifest: Manifest, folder: str) -> None:
    """Checks what is believed before a part is opened; the parts check the rest."""
    for count in (manifest.steps, manifest.updates):
        if not isinstance(count, int) or not 0 <= count < _LARGEST:
            raise ValueError(f"it counts {count!r} steps or updates")
    if manifest.folder != folder:
        raise ValueError(f"it belongs to {manifest.folder}")
    for names, allowed in ((manifest.parts, PART), (manifest.growing, GROWING)):
        for name, description in names.items():
            size = description["bytes"]
            if not allowed.fullmatch(name) or not isinstance(size, int):
                raise ValueError(f"it names {name!r}, which no run has")
            if not 0 <= size < _LARGEST_FILE:
                raise ValueError(f"{name} is to have {size} bytes")
    if not (manifest.best is None or manifest.best in manifest.parts):
        raise ValueError(f"its best policy {manifest.best!r} is not one of its parts")
    own = {"networks.index", "networks.data-00000-of-00001", "policy.npz", "episodes.npz"}
    if not {f"{manifest.folder}/{name}" for name in own} <= manifest.parts.keys():
        raise ValueError("it has not all the parts of a checkpoint")
    stop = None
    for segment in manifest.replay:
        follows = stop is None or segment.start == stop
        if segment.path not in manifest.parts or not follows or segment.stop <= segment.start:
            raise ValueError(f"the replay segment {segment.path} does not follow the one before")
        stop = segment.stop
    for name in ("state", "conditions"):
        if not isinstance(getattr(manifest, name), dict):
            raise ValueError(f"its {name} is not a JSON object")
    config, best = manifest.config, manifest.state.get("best")
    if config is not None and not isinstance(config, dict):
        raise ValueError("its config is not a JSON object")
    if not isinstance(manifest.state.get("in_round"), bool):
        raise ValueError("it does not say whether a round is complete")
    if best is not None and not (
        isinstance(best, list)
        and len(best) == 2
        and isinstance(best[0], int)
        and 0 <= best[0] < _LARGEST
        and isinstance(best[1], int | float)
    ):
        raise ValueError(f"its best policy is of {best!r}")
    rows = manifest.state.get("rows", manifest.steps)
    if (stop or 0) != rows:
        raise ValueError(f"its replay segments end at {stop}, not at {rows}")
