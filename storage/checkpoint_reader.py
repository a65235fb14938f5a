"""What a checkpoint holds, read back: checked first, believed then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eagerly.buffers import RowBuffer
from eagerly.errors import RunError
from eagerly.storage.arrays import read_npy, read_npz
from eagerly.storage.files import RunFiles
from eagerly.storage.manifest import Manifest, Segment, folders_of, read_manifest


@dataclass(frozen=True)
class Saved:
    """A checkpoint whose parts are as they were written.

    Attributes:
        files: Those of the run directory.
        manifest: Names the parts.
    """

    files: RunFiles
    manifest: Manifest

    def is_complete(self, steps: int) -> bool:
        """Whether the run had made so many steps, and its last round was complete."""
        return self.manifest.steps >= steps and not self.manifest.in_round

    def restore_buffer(self, buffer: RowBuffer) -> None:
        """Fills a new buffer with the transitions.

        Raises:
            ValueError: If the rows do not fit the buffer.
        """
        segments = self.manifest.replay
        for segment in segments:
            rows = self.rows(segment)
            if len(rows) != segment.stop - segment.start:
                raise ValueError(f"{segment.path} has {len(rows)} transitions")
            buffer.restore(segment.start, rows)
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

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        """Reads the arrays of a part, "policy" or "episodes"."""
        return self._read(f"{self.manifest.folder}/{name}.npz")

    def best_policy(self) -> dict[str, np.ndarray]:
        """Reads the weights of the best actor; the manifest must name one."""
        assert self.manifest.best is not None
        return self._read(self.manifest.best)

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

    def _read(self, name: str) -> dict[str, np.ndarray]:
        with self.files.open(name) as file:
            return read_npz(file, name)


def newest_intact(
    path: Path, say: Callable[[str], None], *, with_replay: bool = True
) -> Saved | None:
    """Returns the newest checkpoint of a run whose parts are all as they were written.

    Args:
        path: The run directory.
        say: Takes a line about each damaged checkpoint that is passed over.
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
            _announce(manifest, with_replay, say)
            _check_parts(files, manifest, with_replay)
        except (ValueError, FileNotFoundError, IsADirectoryError) as error:
            if folder not in folders_of(files):  # it was removed while it was read
                return newest_intact(path, say, with_replay=with_replay)
            say(f"{path / folder} is damaged ({error}): using the one before it")
            continue
        except OSError as error:
            raise RunError(f"{path / folder} cannot be read: {error}") from error
        return Saved(files, manifest)
    if folders:
        raise RunError(
            f"{path}: no checkpoint is intact, the run cannot be continued. Begin it anew in "
            "another --run-dir."
        )
    return None


def _announce(manifest: Manifest, with_replay: bool, say: Callable[[str], None]) -> None:
    """Says that checking takes long, where it does."""
    parts = manifest.parts.items()
    sizes = (p["bytes"] for n, p in parts if with_replay or not n.startswith("replay/"))
    if (size := sum(sizes)) > _LONG_TO_CHECK:
        say(f"checking {size / 2**30:.0f} GiB of the checkpoint of step {manifest.steps}")


_LONG_TO_CHECK = 2**33


def _check_parts(files: RunFiles, manifest: Manifest, with_replay: bool) -> None:
    for name, expected in manifest.parts.items():
        if not with_replay and name.startswith("replay/"):
            continue
        # A file of an absurd size is not read.
        if not files.is_file(name) or files.size(name) != expected["bytes"]:
            raise ValueError(f"{name} is missing or not as long as it was")
        if files.described(name) != expected:
            raise ValueError(f"{name} is not as it was written")
