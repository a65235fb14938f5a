"""What a checkpoint holds, read back: checked first, believed then."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eagerly.buffers import Buffer
from eagerly.errors import RunError
from eagerly.state import unflatten_state
from eagerly.storage.arrays import read_npy, read_npz
from eagerly.storage.checkpoint_writer import Contents
from eagerly.storage.files import RunFiles
from eagerly.storage.manifest import Manifest, Segment, folders_of, is_finished, read_manifest
from eagerly.storage.run import Run

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose parts are as they were written.

    Attributes:
        files: Those of the run directory.
        manifest: Names the parts.
    """

    files: RunFiles
    manifest: Manifest

    def restore(self, contents: Contents) -> None:
        """Takes over everything; nothing on disk is touched.

        Raises:
            ValueError: If something does not fit, as may be any other exception.
        """
        with self.networks_prefix() as prefix:
            contents.variables.read(prefix)
        self._restore_rows(contents.buffer)
        for name, component in contents.components.items():
            component.restore(self.state(name))

    def _restore_rows(self, buffer: Buffer) -> None:
        segments = self.manifest.replay
        for segment in segments:
            rows = self.rows(segment)
            if len(rows) != segment.stop - segment.start:
                raise ValueError(f"{segment.path} has {len(rows)} transitions")
            buffer.restore_rows(segment.start, rows)
        if segments and segments[0].start > buffer.added - len(buffer):
            raise ValueError(
                "the replay buffer is full and older transitions are gone, replay_capacity can no "
                "longer grow"
            )

    def rows(self, segment: Segment) -> np.ndarray:
        """Reads the rows of a segment of the replay buffer.

        Raises:
            ValueError: If it holds something else.
        """
        with self.files.open(segment.path) as file:
            return read_npy(file, segment.path)

    def state(self, component: str) -> Any:
        """Reads the state of a component.

        Raises:
            ValueError: If the checkpoint has none of that name, or not all its arrays.
        """
        part = f"{self.manifest.folder}/{component}.npz"
        arrays = {}
        if part in self.manifest.parts:
            with self.files.open(part) as file:
                arrays = read_npz(file, part)
        try:
            return unflatten_state(self.manifest.state[component], arrays)
        except (KeyError, TypeError) as error:
            raise ValueError(f"it has no state of {component}: {error!r}") from error

    def policies(self) -> dict[str, tuple[dict[str, np.ndarray], int]]:
        """Returns the weights of the actor, and of which step they are: "latest", maybe "best"."""
        state = self.state("policies")
        found = {"latest": (state["latest"], self.manifest.steps)}
        if (best := state["best"]) is not None:
            found["best"] = best["weights"], int(best["step"])
        return found

    @contextmanager
    def networks_prefix(self) -> Iterator[str]:
        """Gives the prefix of the TensorFlow files.

        Raises:
            ValueError: If something stands beside them that the manifest does not name: their index
                could lead there.
        """
        folder = self.manifest.folder
        for name in (*self.files.names(folder), *self.files.folders(folder)):
            if name not in self.manifest.parts and name != f"{folder}/manifest.json":
                raise ValueError(f"{name} is no part of the checkpoint")
        with self.files.for_tensorflow(self.manifest.folder) as folder:
            yield f"{folder}/networks"


def newest_checkpoint(path: Path, *, with_replay: bool = True) -> Checkpoint | None:
    """Returns the newest checkpoint of a run whose parts are all as they were written.

    A warning is logged for each damaged checkpoint that is passed over.

    Args:
        path: The run directory.
        with_replay: Whether the replay segments are needed, and checked, too.

    Raises:
        RunError: If there are checkpoints, and all are damaged or one cannot be read.
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
            if folder not in folders_of(files):  # it was removed while it was read
                return newest_checkpoint(path, with_replay=with_replay)
            _log.warning(f"{path / folder} is damaged ({error}): using the one before it")
            continue
        except OSError as error:
            raise RunError(f"{path / folder} cannot be read: {error}") from error
        return Checkpoint(files, manifest)
    if folders:
        raise RunError(
            f"{path}: no checkpoint is intact, the run cannot be continued. Begin it anew in "
            "another --run-dir."
        )
    return None


def resumable_checkpoint(run: Run) -> tuple[Checkpoint | None, bool]:
    """Locks a saved run and reads its progress.

    Returns:
        The newest checkpoint, None without one, and whether the run is finished.

    Raises:
        RunError: As `newest_checkpoint`; if another process has the run; if settings of a finished
            run are overridden, which would have no effect.
    """
    if run.is_new:
        return None, False
    run.lock()
    newest = newest_checkpoint(run.path)
    if newest is None or not is_finished(run.path, newest.manifest, run.config):
        return newest, False
    if run.overridden:
        steps = newest.manifest.steps
        flag = "--steps" if steps >= run.config.steps else "--stop-at-return"
        raise RunError(
            f"{run.path} is finished: it has {steps} steps, and reached its {flag}. What "
            f"--override accepts acts only on further steps: give a larger {flag} too."
        )
    return newest, True


def required_checkpoint(path: Path, *, with_replay: bool = True) -> Checkpoint:
    """Returns the newest checkpoint as `newest_checkpoint` does, of a run that must have one.

    Raises:
        RunError: Also if the run has no checkpoint yet.
    """
    saved = newest_checkpoint(path, with_replay=with_replay)
    if saved is None:
        raise RunError(f"{path} has no checkpoint yet: train it first")
    return saved


_LONG_TO_CHECK = 2**33


def _check_parts(files: RunFiles, manifest: Manifest, with_replay: bool) -> None:
    parts = {
        name: expected
        for name, expected in manifest.parts.items()
        if with_replay or not name.startswith("replay/")
    }
    if (size := sum(expected["bytes"] for expected in parts.values())) > _LONG_TO_CHECK:
        _log.info(f"checking {size / 2**30:.0f} GiB of the checkpoint of step {manifest.steps}")
    for name, expected in parts.items():
        # A file of an absurd size is not read.
        if not files.is_file(name) or files.size(name) != expected["bytes"]:
            raise ValueError(f"{name} is missing or not as long as it was")
        if files.described(name) != expected:
            raise ValueError(f"{name} is not as it was written")
