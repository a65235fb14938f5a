"""What a checkpoint holds, read back: checked first, believed then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eagerly.buffers import RowBuffer
from eagerly.training.arrays import read_npy, read_npz
from eagerly.training.errors import RunError
from eagerly.training.files import described, is_regular
from eagerly.training.manifest import Manifest, read_manifest


@dataclass(frozen=True)
class Saved:
    """A checkpoint whose parts are as they were written.

    Attributes:
        path: The run directory.
        manifest: Names the parts.
    """

    path: Path
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
            rows = read_npy(self.path / segment.path)
            if len(rows) != segment.stop - segment.start:
                raise ValueError(f"{segment.path} has {len(rows)} transitions")
            buffer.restore(segment.start, rows)
        if segments and segments[0].start > buffer.added - len(buffer):
            raise ValueError(
                "the replay buffer is full and older transitions are gone, replay_capacity can no "
                "longer grow"
            )

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        """Reads the arrays of a part, "policy" or "episodes"."""
        return read_npz(self.path / self.manifest.folder / f"{name}.npz")

    def best_policy(self) -> dict[str, np.ndarray]:
        """Reads the weights of the best actor; the manifest must name one."""
        assert self.manifest.best is not None
        return read_npz(self.path / self.manifest.best)

    @property
    def networks_prefix(self) -> str:
        """The prefix of the TensorFlow files."""
        return str(self.path / self.manifest.folder / "networks")


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
    manifests = sorted((path / "checkpoints").glob("*/manifest.json"), reverse=True)
    for folder in (manifest.parent for manifest in manifests):
        try:
            manifest = read_manifest(folder)
            _check_parts(path, manifest, with_replay)
        except (ValueError, FileNotFoundError, IsADirectoryError) as error:
            if not (folder / "manifest.json").exists():  # it was removed while it was read
                return newest_intact(path, say, with_replay=with_replay)
            say(f"{folder} is damaged ({error}): using the one before it")
            continue
        except OSError as error:
            raise RunError(f"{folder} cannot be read: {error}") from error
        return Saved(path, manifest)
    if manifests:
        raise RunError(
            f"{path}: no checkpoint is intact, the run cannot be continued. Begin it anew in "
            "another --run-dir."
        )
    return None


def _check_parts(path: Path, manifest: Manifest, with_replay: bool) -> None:
    for name, expected in manifest.parts.items():
        if not with_replay and name.startswith("replay/"):
            continue
        # A pipe is not opened, it would wait; a file of an absurd size is not read.
        part = path / name
        if not is_regular(part) or part.stat().st_size != expected["bytes"]:
            raise ValueError(f"{name} is missing or not as long as it was")
        if described(part) != expected:
            raise ValueError(f"{name} is not as it was written")
