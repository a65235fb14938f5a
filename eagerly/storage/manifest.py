"""Checkpoint manifests, which list the files of a checkpoint and contain a checksum."""

from __future__ import annotations

import json
import math
import re
import stat
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from eagerly.errors import RunError, UsageError
from eagerly.storage.config import NO_EVALUATIONS, RunConfig
from eagerly.storage.documents import check_format, read_document, unsealed, write_document
from eagerly.storage.evaluations import last_step_of
from eagerly.storage.files import RunFiles

FORMAT = 1
# Names must match these patterns before a file is opened, so none can leave the run directory.
FOLDER = re.compile(r"checkpoints/\d{12}-\d{12}(-[1-9])?")
PART = re.compile(
    rf"{FOLDER.pattern}/(networks\.(index|data-00000-of-00001)|[a-z_]{{1,40}}\.npz)"
    r"|replay/\d{12}-\d{12}\.npy"
)
GROWING = re.compile(r"evaluations\.csv|events\.out\.tfevents\.[\w.-]+")
PENDING = ("evaluation", "round", "video")
_LARGEST = 10**12  # steps: twelve digits
_LARGEST_FILE = 2**40


@dataclass(frozen=True)
class Segment:
    """A file with rows `start` to `stop` of the replay buffer, counted over the whole run."""

    start: int
    stop: int
    path: str


@dataclass(frozen=True)
class Manifest:
    """The files and metadata of a checkpoint. Paths are relative to the run directory.

    Attributes:
        steps: Environment steps completed.
        updates: Updates completed.
        parts: Size and checksum of each file of the checkpoint.
        in_round: Whether the round was incomplete, with updates, an evaluation or a video pending.
        replay: The segments that together contain the replay buffer.
        growing: Size and checksum of event files and tables. A resumed run truncates them to this
            size.
        state: State of each component, without its arrays.
        spaces: The environment's spaces, see `spaces.serialization`.
        conditions: Prerequisites for bit-exact resuming: versions, threads, device.
        config: Content of `config.json`.
        pending: Remaining work of the round after its updates: "evaluation", "round" (its curves
            and callbacks), "video".
        revision: Number of earlier checkpoints with the same steps and updates but more pending
            work.
    """

    steps: int
    updates: int
    parts: dict[str, dict[str, Any]]
    in_round: bool
    replay: tuple[Segment, ...]
    growing: dict[str, dict[str, Any]]
    state: dict[str, Any]
    spaces: dict[str, Any]
    conditions: dict[str, Any]
    config: dict[str, Any]
    pending: tuple[str, ...] = ()
    revision: int = 0

    @property
    def folder(self) -> str:
        """The directory of the checkpoint."""
        return folder_name(self.steps, self.updates, self.revision)


def folder_name(steps: int, updates: int, revision: int = 0) -> str:
    """Returns the directory name of a checkpoint. Names sort chronologically."""
    name = f"checkpoints/{steps:012d}-{updates:012d}"
    return f"{name}-{revision}" if revision else name


def write_manifest(files: RunFiles, manifest: Manifest) -> None:
    """Publishes a checkpoint by writing its manifest, if that can be read back.

    Raises:
        RunError: If the manifest could not be read back, for example because states are too large.
        OSError: If the file cannot be written.
    """
    document = {"format": FORMAT, **vars(manifest)}
    document["replay"] = [vars(segment) for segment in manifest.replay]
    name = f"{manifest.folder}/manifest.json"
    try:
        write_document(files, name, document, partial(_manifest_of, files, manifest.folder))
    except RunError as error:
        sizes = {part: len(json.dumps(state)) for part, state in manifest.state.items()}
        largest = max(sizes, key=sizes.__getitem__)
        raise RunError(
            f"{error}. The largest state is that of {largest}: store its large values, including "
            "those in an info that it keeps, as NumPy arrays, which go to separate files"
        ) from error


def read_manifest(files: RunFiles, folder: str) -> Manifest:
    """Reads the manifest of a checkpoint.

    Args:
        files: Files of the run directory.
        folder: Directory of the checkpoint, as listed by `folders_of`.

    Raises:
        ValueError: If the manifest is invalid, its checksum differs, or it lists files that a
            run never writes.
        OSError: If the file cannot be read.
        RunError: If another release of eagerly wrote it.
    """
    return _manifest_of(files, folder, unsealed(read_document(files, f"{folder}/manifest.json")))


def _manifest_of(files: RunFiles, folder: str, document: dict[str, Any]) -> Manifest:
    try:
        check_format(document.pop("format"), FORMAT, str(files.path / folder))
        document["replay"] = tuple(Segment(**segment) for segment in document["replay"])
        document["pending"] = tuple(document.get("pending", ()))
        manifest = Manifest(**document)
        _check(manifest, folder)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is not a valid manifest: {error!r}") from error
    return manifest


def finished_by(run: Path, manifest: Manifest, config: RunConfig, last_override: int) -> list[str]:
    """Returns the settings that finished a run at this checkpoint: "steps", "stop_at_return".

    The list is empty if the run is not finished. Without a best policy, the run must also have been
    evaluated at its end, unless it is never evaluated. That evaluation follows the last checkpoint.

    Args:
        run: The run directory.
        manifest: The manifest of the newest checkpoint.
        config: The settings of the run.
        last_override: Step of the last override. Earlier evaluations do not count. -1: no override.
    """
    best_return = _best_return(manifest, last_override)
    reached = config.limits_reached(manifest.steps, best_return)
    if not reached or manifest.in_round:
        return []
    is_scored = best_return > -math.inf or config.evaluations == NO_EVALUATIONS
    if not is_scored and last_step_of(run / "evaluations.csv") != manifest.steps:
        return []
    return reached


def check_total(run: Path, manifest: Manifest, config: RunConfig) -> None:
    """Raises a `UsageError` if `steps` was reduced below those already made.

    Args:
        run: The run directory.
        manifest: As in `finished_by`.
        config: As in `finished_by`.
    """
    saved = manifest.config.get("settings")
    # A run that completes a round may have more steps than its unchanged total.
    unchanged = isinstance(saved, dict) and saved.get("steps") == config.steps
    if config.steps < manifest.steps and not unchanged:
        raise UsageError(
            f"{run} already has {manifest.steps} steps: --steps is the total of a run and must be "
            f"at least {manifest.steps}; got {config.steps}"
        )


def has_evaluation_at_end(
    run: Path, manifest: Manifest, config: RunConfig, last_override: int
) -> bool:
    """Returns whether an evaluation after this last checkpoint finished the run."""
    if _best_return(manifest, last_override) > -math.inf:
        return False
    if not finished_by(run, manifest, config, last_override):
        return False
    sealed_bytes = manifest.growing.get("evaluations.csv", {"bytes": 0})["bytes"]
    return RunFiles(run).size("evaluations.csv") > sealed_bytes


def _best_return(manifest: Manifest, last_override: int) -> float:
    try:
        best = manifest.state["policies"]["best"]
        if best is None or int(best["step"]) <= last_override:
            return -math.inf
        return float(best["return"])
    except (KeyError, TypeError, ValueError):  # damaged; loading it reports the error
        return -math.inf


def folders_of(files: RunFiles) -> list[str]:
    """Returns the directories of published checkpoints, oldest first.

    Raises:
        OSError: If `checkpoints` is a link or cannot be read.
    """
    found = (name for name in files.folders("checkpoints") if FOLDER.fullmatch(name))
    manifests = ((name, files.status(f"{name}/manifest.json")) for name in found)
    return [name for name, status in manifests if status and not stat.S_ISDIR(status.st_mode)]


def published(run: Path) -> list[Manifest]:
    """Returns the readable manifests of a run, oldest first."""
    files, manifests = RunFiles(run), []
    with suppress(OSError):
        for folder in folders_of(files):
            with suppress(ValueError, OSError, RunError):
                manifests.append(read_manifest(files, folder))
    return manifests


def _check(manifest: Manifest, folder: str) -> None:
    """Validates the fields needed to open the listed files; their readers validate the rest."""
    for count in (manifest.steps, manifest.updates, manifest.revision):
        if not isinstance(count, int) or not 0 <= count < _LARGEST:
            raise ValueError(f"its number of steps, updates or revisions is invalid: {count!r}")
    if manifest.folder != folder:
        raise ValueError(f"it is the manifest of {manifest.folder}")
    for names, allowed in ((manifest.parts, PART), (manifest.growing, GROWING)):
        for name, description in names.items():
            size = description["bytes"]
            if not allowed.fullmatch(name) or not isinstance(size, int):
                raise ValueError(f"it lists an invalid file: {name!r}")
            if not 0 <= size < _LARGEST_FILE:
                raise ValueError(f"the size of {name} is invalid: {size} bytes")
    own = {"networks.index", "networks.data-00000-of-00001"}
    if not {f"{manifest.folder}/{name}" for name in own} <= manifest.parts.keys():
        raise ValueError("it does not list the network files")
    stop = None
    for number, segment in enumerate(manifest.replay):
        # The first segment may contain logged data, and the rows that followed it may be gone.
        follows = stop is None or segment.start == stop or (number == 1 and segment.start > stop)
        if segment.path not in manifest.parts or not follows or segment.stop <= segment.start:
            raise ValueError(f"replay segment {segment.path} is unlisted, empty or not contiguous")
        stop = segment.stop
    for name in ("state", "spaces", "conditions", "config"):
        if not isinstance(getattr(manifest, name), dict):
            raise ValueError(f"its {name} is not a JSON object")
    if not isinstance(manifest.in_round, bool):
        raise ValueError("in_round must be a boolean")
    if list(manifest.pending) != [name for name in PENDING if name in manifest.pending]:
        raise ValueError(f"pending must be a subset of {PENDING} in order; got {manifest.pending}")
    if bool(manifest.pending) and not manifest.in_round:
        raise ValueError(f"pending must be empty between rounds; got {manifest.pending}")
