"""Writes checkpoints: immutable files, then the manifest that publishes them.

For the directory layout, see "Runs" in the documentation. A checkpoint is valid once its manifest
exists, which is created by an atomic rename. The replay buffer is saved incrementally, in segments
that are never rewritten. Loading cannot execute code: files contain JSON and arrays without pickle.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from eagerly.buffers import Replay
from eagerly.errors import RunError
from eagerly.state import Stateful, flatten_state
from eagerly.storage.arrays import npy_chunks, npz_chunks
from eagerly.storage.evaluations import LONGEST_ROW
from eagerly.storage.files import RunFiles
from eagerly.storage.manifest import (
    FOLDER,
    GROWING,
    PART,
    Manifest,
    Segment,
    folder_name,
    published,
    write_manifest,
)

_log = logging.getLogger(__name__)
_TEMPORARY = ("config.json.tmp", "evaluations.csv.tmp", "lock.tmp", "tracking.json.tmp")


class Variables(Protocol):
    """The variables of networks and optimizers, saved in separate files."""

    def write(self, prefix: str) -> None:
        """Writes the files `prefix.index` and `prefix.data-*`.

        Raises:
            FloatingPointError: If a variable is not finite.
            OSError: If the files cannot be written.
        """

    def read(self, prefix: str) -> None:
        """Restores the variables from these files.

        Raises:
            ValueError: If the files contain other variables.
        """


@dataclass(frozen=True)
class Contents:
    """The contents of a checkpoint.

    Attributes:
        variables: Networks, target networks and optimizers, saved by `tf.train.Checkpoint`.
        buffer: The replay buffer, saved in segments of new transitions.
        components: Other stateful components by name, in restore order. The arrays of each are
            saved in a file of that name.
    """

    variables: Variables
    buffer: Replay
    components: Mapping[str, Stateful]


class CheckpointWriter:
    """Writes the checkpoints of a run directory and removes obsolete files.

    Args:
        path: The run directory.
        keep: Number of checkpoints to keep.
    """

    def __init__(self, path: Path, keep: int) -> None:
        self._files = RunFiles(path)
        self._keep = keep
        # Bytes read so far and their digest, for each growing file.
        self._digests: dict[str, tuple[int, Any]] = {}
        self._published: list[Manifest] | None = None  # None until read from disk

    def save(self, contents: Contents, **about: Any) -> bool:
        """Writes a checkpoint and removes those beyond `keep`.

        Does nothing if the newest checkpoint has the same steps, updates and pending work. If an
        error is raised, nothing is published and the partial checkpoint is removed.

        Args:
            contents: The contents to save.
            **about: The remaining fields of the `Manifest`: steps, updates, in_round, pending,
                spaces, conditions, config.

        Returns:
            Whether a checkpoint was written.

        Raises:
            FloatingPointError: If a variable is not finite.
            RunError: If the checkpoint could not be read back, or another thread added rows to the
                buffer in the meantime.
            OSError: If a file cannot be written.
        """
        if self._published is None:
            self._published = published(self._files.path)
        previous = self._published
        steps, updates, revision = about["steps"], about["updates"], 0
        last = previous[-1] if previous else None
        if last and (last.steps, last.updates) == (steps, updates):
            if last.pending == about["pending"]:
                # Saving again would do harm: a finished run may have been evaluated after this
                # checkpoint. That evaluation must be discarded if the run is extended, but a new
                # checkpoint would include it.
                return False
            revision = last.revision + 1
        folder, added = folder_name(steps, updates, revision), contents.buffer.added
        states = {name: flatten_state(part.state()) for name, part in contents.components.items()}
        arrays = {name: arrays for name, (_, arrays) in states.items() if arrays}
        try:
            parts = self._write_parts(folder, contents.variables, arrays)
            manifest = Manifest(
                parts=parts,
                replay=self._append_replay(contents.buffer, last, parts),
                growing={
                    name: self._grown(name)
                    for name in self._files.names()
                    if GROWING.fullmatch(name) and self._files.is_file(name)
                },
                state={name: document for name, (document, _) in states.items()},
                revision=revision,
                **about,
            )
            if contents.buffer.added != added:
                raise RunError(
                    "another thread added rows to the replay buffer during the save: save and add "
                    "rows in the same thread"
                )
            for name in ("", "checkpoints", folder):
                self._files.sync_folder(name)
            write_manifest(self._files, manifest)
        except BaseException:
            with suppress(OSError):
                self._clean(previous)
            raise
        self._files.sync_folder("checkpoints")
        self._published = [*previous, manifest][-self._keep :]
        with suppress(OSError):  # remaining files are removed at the next save
            self._clean(self._published)
        return True

    def _write_parts(
        self, folder: str, variables: Variables, arrays: Mapping[str, Mapping[str, np.ndarray]]
    ) -> dict[str, dict[str, Any]]:
        self._files.make_folder("checkpoints")
        self._files.remove_folder(folder)
        self._files.make_folder(folder, is_new=True)
        with self._files.for_tensorflow(folder) as path:
            variables.write(f"{path}/networks")
        parts = {}
        for name in self._files.names(folder):
            self._files.sync(name)
            parts[name] = self._files.described(name)
        for name, content in arrays.items():
            part = f"{folder}/{name}.npz"
            try:
                parts[part] = self._files.write(part, npz_chunks(content))
            except ValueError as error:
                raise RunError(
                    f"the state of {name} was not written: it could not be read back ({error})"
                ) from error
        return parts

    def _append_replay(
        self, buffer: Replay, last: Manifest | None, parts: dict[str, dict[str, Any]]
    ) -> tuple[Segment, ...]:
        """Writes the rows added since the last checkpoint, and lists all segments in `parts`."""
        oldest, permanent = buffer.oldest, buffer.permanent
        replay, saved = (last.replay, last.parts) if last else ((), {})
        kept = [s for s in replay if s.stop > oldest or s.stop <= permanent]
        parts |= {segment.path: saved[segment.path] for segment in kept}
        done = kept[-1].stop if kept else 0
        # Permanent rows have a separate segment, which is never removed.
        for start, stop in ((done, permanent), (max(done, oldest), buffer.added)):
            if start < stop:
                name = f"replay/{start:012d}-{stop:012d}.npy"
                self._files.make_folder("replay")
                parts[name] = self._files.write(name, npy_chunks(buffer.rows(start, stop)))
                kept.append(Segment(start, stop, name))
        return tuple(kept)

    def cut_back(self, manifest: Manifest | None) -> None:
        """Discards results written after a checkpoint, or all results if there is none.

        Tables and event files are truncated to their lengths at the checkpoint, so that repeated
        steps appear in them only once. Newer files and unpublished checkpoints are deleted.

        Args:
            manifest: Manifest of the checkpoint, if any.
        """
        files, growing = self._files, manifest.growing if manifest else {}
        for name in files.names():
            if GROWING.fullmatch(name) and name not in growing:
                files.remove(name)
        for name, expected in growing.items():
            path = files.path / name
            if files.size(name) < expected["bytes"] or not files.is_file(name):
                _log.warning("%s is missing or truncated: points of its curves are lost", path)
                if not files.is_file(name):  # for example a link or a pipe
                    files.remove_folder(name)
                elif name == "evaluations.csv":  # so that no row is appended to an incomplete one
                    start = max(0, files.size(name) - LONGEST_ROW)
                    with files.open(name) as file:
                        file.seek(start)
                        complete = file.read(LONGEST_ROW).rfind(b"\n") + 1
                    files.cut(name, start + complete)
                continue
            files.cut(name, expected["bytes"])
            if self._grown(name) != expected:
                _log.warning("%s is damaged: points of its curves may be lost or wrong", path)
        found = published(files.path)
        kept = [m for m in found if manifest and m.folder <= manifest.folder]
        for newer in found[len(kept) :]:
            files.remove(f"{newer.folder}/manifest.json")
        self._published = kept[-self._keep :]
        self._clean(self._published)

    def _grown(self, name: str) -> dict[str, Any]:
        """Syncs a growing file and returns its size and checksum. Reads only new bytes."""
        size, digest = self._digests.get(name, (0, hashlib.sha256()))
        with self._files.open(name) as file:
            os.fsync(file.fileno())
            file.seek(size)
            while chunk := file.read(2**20):
                digest.update(chunk)
                size += len(chunk)
        self._digests[name] = (size, digest)
        return {"bytes": size, "sha256": digest.hexdigest()}

    def _clean(self, manifests: list[Manifest]) -> None:
        """Removes files that no manifest lists, if this class could have written them."""
        files, kept = self._files, {manifest.folder for manifest in manifests}
        for folder in files.folders("checkpoints"):
            if folder not in kept and FOLDER.fullmatch(folder):
                files.remove_folder(f"{folder}/manifest.json")  # unpublish the checkpoint first
                files.remove_folder(folder)
        named = {name for manifest in manifests for name in manifest.parts}
        for name in files.names("replay"):
            if name not in named and PART.fullmatch(name.removesuffix(".tmp")):
                files.remove(name)
        for folder in ("", "videos", *sorted(kept)):
            for name in files.names(folder):
                if name.endswith(".tmp") and (folder or name in _TEMPORARY):
                    files.remove(name)
