"""Reads checkpoints and verifies their files before use."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eagerly.buffers import Replay
from eagerly.errors import RunError, UsageError
from eagerly.settings import flag_name
from eagerly.state import unflatten_state
from eagerly.storage.arrays import read_npy, read_npz
from eagerly.storage.checkpoint_writer import Contents
from eagerly.storage.files import RunFiles
from eagerly.storage.manifest import (
    Manifest,
    Segment,
    check_total,
    finished_by,
    folders_of,
    read_manifest,
)
from eagerly.storage.run import Run

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose files match their checksums.

    Attributes:
        files: Files of the run directory.
        manifest: The manifest, which lists the checkpoint's files.
    """

    files: RunFiles
    manifest: Manifest

    def restore(self, contents: Contents) -> None:
        """Restores all components from the checkpoint, without changing files.

        Raises:
            ValueError: If the checkpoint does not match a component, which may raise other
                exceptions, too.
        """
        with self.networks_prefix() as prefix:
            contents.variables.read(prefix)
        self._restore_rows(contents.buffer)
        for name, component in contents.components.items():
            component.restore(self.state(name))

    def _restore_rows(self, buffer: Replay) -> None:
        segments = self.manifest.replay
        for segment in segments:
            rows = self.rows(segment)
            if len(rows) != segment.stop - segment.start:
                raise ValueError(f"{segment.path} has the wrong number of transitions: {len(rows)}")
            buffer.restore_rows(segment.start, rows)
        others = [segment for segment in segments if segment.start >= buffer.permanent]
        if others and others[0].start > buffer.oldest:
            raise ValueError(
                "replay_capacity cannot be increased: the replay buffer is full and older "
                "transitions were overwritten"
            )

    def rows(self, segment: Segment) -> np.ndarray:
        """Reads the rows of a replay segment.

        Raises:
            ValueError: If the file is not a valid `.npy` file.
        """
        with self.files.open(segment.path) as file:
            return read_npy(file, segment.path)

    def state(self, component: str) -> Any:
        """Reads the state of a component.

        Raises:
            ValueError: If the checkpoint has no state of this name, or lacks some of its arrays.
        """
        part = f"{self.manifest.folder}/{component}.npz"
        arrays = {}
        if part in self.manifest.parts:
            with self.files.open(part) as file:
                arrays = read_npz(file, part)
        try:
            return unflatten_state(self.manifest.state[component], arrays)
        except (KeyError, TypeError) as error:
            raise ValueError(f"the checkpoint has no state of {component}: {error!r}") from error

    def policies(self, last_override: int) -> dict[str, tuple[dict[str, np.ndarray], int]]:
        """Returns actor weights and their step for "latest" and, if available, "best".

        Args:
            last_override: Step of the last override. Earlier best policies do not count. -1: no
                override.
        """
        state = self.state("policies")
        found = {"latest": (state["latest"], self.manifest.steps)}
        best = state["best"]
        if best is not None and best["step"] > last_override:
            found["best"] = best["weights"], int(best["step"])
        return found

    @contextmanager
    def networks_prefix(self) -> Iterator[str]:
        """Yields the path prefix of the TensorFlow checkpoint files.

        Raises:
            ValueError: If the directory contains a file that the manifest does not list: the
                TensorFlow index could refer to it.
        """
        folder = self.manifest.folder
        for name in (*self.files.names(folder), *self.files.folders(folder)):
            if name not in self.manifest.parts and name != f"{folder}/manifest.json":
                raise ValueError(f"{name} is not part of the checkpoint")
        with self.files.for_tensorflow(self.manifest.folder) as folder:
            yield f"{folder}/networks"


def newest_checkpoint(path: Path, *, with_replay: bool = True) -> Checkpoint | None:
    """Returns the newest intact checkpoint of a run, or None if it has no checkpoints.

    A warning is logged for each damaged checkpoint that is skipped.

    Args:
        path: The run directory.
        with_replay: Whether to verify the replay segments as well.

    Raises:
        RunError: If all checkpoints are damaged, or one cannot be read.
    """
    files = RunFiles(path)
    try:
        folders = folders_of(files)[::-1]
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error}") from error
    for folder in folders:
        try:
            manifest = read_manifest(files, folder)
            _check_parts(files, manifest, with_replay)
        except (ValueError, FileNotFoundError, IsADirectoryError) as error:
            if folder not in folders_of(files):  # another process removed it during the reading
                return newest_checkpoint(path, with_replay=with_replay)
            _log.warning(f"{path / folder} is damaged ({error}) and not used")
            continue
        except OSError as error:
            raise RunError(f"{path / folder} cannot be read: {error}") from error
        return Checkpoint(files, manifest)
    if folders:
        raise RunError(
            f"{path} has no intact checkpoint: restore the directory from a copy, or start a new "
            "run in another --run-dir"
        )
    return None


def resumable_checkpoint(run: Run) -> tuple[Checkpoint | None, list[str]]:
    """Locks a saved run and returns its newest checkpoint.

    Returns:
        The newest checkpoint, or None without one, and the settings that finished the run; see
        `finished_by`.

    Raises:
        RunError: If `newest_checkpoint` fails, another process holds the lock, `steps` was reduced
            below those already made, or settings of a finished run are overridden, which would have
            no effect.
    """
    if run.is_new:
        return None, []
    run.lock()
    newest = newest_checkpoint(run.path)
    if newest is None:
        return None, []
    check_total(run.path, newest.manifest, run.config)
    reached = finished_by(run.path, newest.manifest, run.config, run.last_override)
    if reached and run.overridden:
        flags = " and ".join(map(flag_name, reached))
        instead = " (none removes the target)" if "stop_at_return" in reached else ""
        raise UsageError(
            f"{run.path} is finished: it has {newest.manifest.steps} steps and reached its "
            f"{flags}. Overrides affect further steps only: increase {flags} as well{instead}"
        )
    return newest, reached


def required_checkpoint(path: Path, *, with_replay: bool = True) -> Checkpoint:
    """Returns the newest intact checkpoint of a run that must have one.

    Raises:
        RunError: If the run has no checkpoint, or `newest_checkpoint` fails.
    """
    saved = newest_checkpoint(path, with_replay=with_replay)
    if saved is None:
        raise UsageError(f"{path} has no checkpoint yet: train it first")
    return saved


_LONG_TO_CHECK = 2**33


def _check_parts(files: RunFiles, manifest: Manifest, with_replay: bool) -> None:
    parts = {
        name: expected
        for name, expected in manifest.parts.items()
        if with_replay or not name.startswith("replay/")
    }
    if (size := sum(expected["bytes"] for expected in parts.values())) > _LONG_TO_CHECK:
        _log.info(f"verifying {size / 2**30:.0f} GiB of the checkpoint at step {manifest.steps}")
    for name, expected in parts.items():
        # Compare sizes first, so that a file of an absurd size is never read.
        if not files.is_file(name) or files.size(name) != expected["bytes"]:
            raise ValueError(f"{name} is missing or has the wrong size")
        if files.described(name) != expected:
            raise ValueError(f"{name} does not match its checksum")
