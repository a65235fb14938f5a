"""Checkpoints of a run: immutable parts, and a manifest that is written last.

    runs/cheetah/
      config.json                       settings
      events.out.tfevents.*             TensorBoard
      evaluations.csv
      replay/START-STOP.npy             transitions START to STOP, written once
      policies/best-STEP.npz            the best actor so far, written once
      checkpoints/STEPS-UPDATES/
        networks.index, networks.data*  tf.train.Checkpoint: networks, targets, optimisers
        policy.npz                      the actor as it was
        episodes.npz                    the episodes in progress
        manifest.json                   names the parts that belong together

A directory of `checkpoints/` counts once its manifest stands in it, which happens by one rename.
A checkpoint costs what is new since the last one: transitions are appended as segments that are
never written again. Nothing read back can execute code: JSON and arrays without pickle.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from eagerly.buffers import ReplayBuffer
from eagerly.training.errors import RunError
from eagerly.training.manifest import Manifest, Segment, decoded, encoded, folder_name
from eagerly.training.run_directory import replace_file, sync_directory


class Checkpoints:
    """Writes and reads the checkpoints of one run directory.

    Args:
        path: The run directory.
        keep: How many of the newest are kept.
    """

    def __init__(self, path: Path, keep: int) -> None:
        self._path = path
        self._keep = keep

    def save(
        self,
        *,
        steps: int,
        updates: int,
        write_networks: Callable[[str], None],
        policy: Mapping[str, np.ndarray],
        best: tuple[int, Mapping[str, np.ndarray]] | None,
        buffer: ReplayBuffer,
        episodes: Mapping[str, np.ndarray],
        growing: Sequence[Path],
        state: dict[str, Any],
        conditions: dict[str, Any],
    ) -> None:
        """Writes a checkpoint and removes those that are no longer kept.

        Args:
            steps: Environment steps done.
            updates: Updates done; with the steps they name the checkpoint.
            write_networks: Writes a `tf.train.Checkpoint` to the prefix it is given.
            policy: The actor's weights by path.
            best: Step and weights of the best actor so far.
            buffer: Its new transitions are appended.
            episodes: Arrays of the episodes in progress.
            growing: Files that are only ever appended to, flushed.
            state: Counters and random states, as JSON.
            conditions: What bit-exact continuation relies on.
        """
        previous = self.published()
        if previous and (previous[-1].steps, previous[-1].updates) == (steps, updates):
            return
        folder = self._path / folder_name(steps, updates)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        parts: dict[str, dict[str, Any]] = {}
        write_networks(str(folder / "networks"))
        for path in sorted(folder.glob("networks.*")):
            parts[self._name(path)] = _sealed(path)
        for name, arrays in (("policy", policy), ("episodes", episodes)):
            path = folder / f"{name}.npz"
            parts[self._name(path)] = _written(path, _npz_writer(arrays))
        best_name = None
        if best is not None:
            path = self._path / "policies" / f"best-{best[0]:012d}.npz"
            best_name = self._name(path)
            parts[best_name] = self._reused(previous, best_name) or _written(
                path, _npz_writer(best[1])
            )
        replay = self._append_replay(buffer, previous, parts)
        manifest = Manifest(
            steps=steps,
            updates=updates,
            parts=parts,
            replay=replay,
            best=best_name,
            lengths={self._name(path): path.stat().st_size for path in growing},
            state=state,
            conditions=conditions,
        )
        for path in growing:
            _sync(path)
        sync_directory(folder)
        replace_file(folder / "manifest.json", encoded(manifest))
        sync_directory(folder.parent)
        self._prune([*previous, manifest])

    def _append_replay(
        self,
        buffer: ReplayBuffer,
        previous: list[Manifest],
        parts: dict[str, dict[str, Any]],
    ) -> tuple[Segment, ...]:
        oldest = buffer.added - len(buffer)
        last = previous[-1] if previous else None
        kept = [segment for segment in last.replay if segment.stop > oldest] if last else []
        start = max(kept[-1].stop if kept else 0, oldest)
        if last:
            parts.update({segment.path: last.parts[segment.path] for segment in kept})
        if start < buffer.added:
            path = self._path / "replay" / f"{start:012d}-{buffer.added:012d}.npy"
            rows = buffer.stored(start, buffer.added)
            parts[self._name(path)] = _written(
                path, lambda file: np.save(file, rows, allow_pickle=False)
            )
            kept.append(Segment(start, buffer.added, self._name(path)))
        return tuple(kept)

    def _reused(self, previous: list[Manifest], name: str) -> dict[str, Any] | None:
        return previous[-1].parts.get(name) if previous else None

    def published(self) -> list[Manifest]:
        """Reads the manifests, oldest first; those that cannot be read are left out."""
        manifests = []
        for path in sorted((self._path / "checkpoints").glob("*/manifest.json")):
            try:
                manifests.append(decoded(path.read_bytes()))
            except (ValueError, KeyError, TypeError, OSError):
                continue
        return manifests

    def newest_intact(
        self, say: Callable[[str], None], *, with_replay: bool = True
    ) -> Manifest | None:
        """Returns the newest checkpoint whose parts are all as they were written.

        Args:
            say: Takes a line about each damaged checkpoint that is passed over.
            with_replay: Whether the replay segments are needed, and checked, too.

        Raises:
            RunError: If there are checkpoints, and all are damaged or one cannot be read.
        """
        paths = sorted((self._path / "checkpoints").glob("*/manifest.json"), reverse=True)
        for path in paths:
            try:
                manifest = decoded(path.read_bytes())
                self._check_parts(manifest, with_replay)
            except (ValueError, KeyError, TypeError, FileNotFoundError) as error:
                say(f"{path.parent} is damaged ({error}): using the one before it")
                continue
            except OSError as error:
                raise RunError(f"{path.parent} cannot be read: {error}") from error
            return manifest
        if paths:
            raise RunError(f"{self._path}: no checkpoint is intact, the run cannot be continued")
        return None

    def _check_parts(self, manifest: Manifest, with_replay: bool) -> None:
        for name, expected in manifest.parts.items():
            if not with_replay and name.startswith("replay/"):
                continue
            if _described(self._path / name) != expected:
                raise ValueError(f"{name} is not as it was written")

    def restore_buffer(self, manifest: Manifest, buffer: ReplayBuffer) -> None:
        """Fills a new buffer with the transitions of a checkpoint.

        Raises:
            ValueError: If the rows do not fit the buffer.
        """
        for segment in manifest.replay:
            rows = np.load(self._path / segment.path, allow_pickle=False)
            buffer.restore(segment.start, rows)
        if manifest.replay and manifest.replay[0].start > buffer.added - len(buffer):
            raise ValueError(
                "the replay buffer is full and older transitions are gone, replay_capacity can no "
                "longer grow"
            )

    def arrays(self, manifest: Manifest, name: str) -> dict[str, np.ndarray]:
        """Reads the arrays of a part of the checkpoint, "policy" or "episodes"."""
        return read_arrays(self._path / manifest.folder / f"{name}.npz")

    def best_policy(self, manifest: Manifest) -> dict[str, np.ndarray]:
        """Reads the weights of the best actor; the manifest must name one."""
        assert manifest.best is not None
        return read_arrays(self._path / manifest.best)

    def networks_prefix(self, manifest: Manifest) -> str:
        """The prefix of the checkpoint's TensorFlow files."""
        return str(self._path / manifest.folder / "networks")

    def cut_back(self, manifest: Manifest | None, say: Callable[[str], None]) -> None:
        """Removes what was written after a checkpoint, or everything where there is none.

        Tables and event files are cut to the lengths they had, so that a step that is done again
        stands in them once; newer files and unpublished checkpoints go.

        Args:
            manifest: The checkpoint.
            say: Takes a line about each file that is shorter than it was.
        """
        lengths = manifest.lengths if manifest else {}
        for path in [*self._path.glob("events.out.tfevents.*"), self._path / "evaluations.csv"]:
            length = lengths.get(self._name(path))
            if length is None:
                path.unlink(missing_ok=True)
            elif path.exists() and path.stat().st_size >= length:
                os.truncate(path, length)
            else:
                say(f"{path} is missing or shorter than it was: points of its curves are lost")
        for folder in (self._path / "checkpoints").glob("*"):
            if not manifest or folder.name > Path(manifest.folder).name:
                shutil.rmtree(folder)
        self._prune(self.published())

    def _prune(self, manifests: list[Manifest]) -> None:
        for manifest in manifests[: -self._keep]:
            (self._path / manifest.folder / "manifest.json").unlink()  # no longer counts
            shutil.rmtree(self._path / manifest.folder)
        named = {name for manifest in manifests[-self._keep :] for name in manifest.parts}
        for folder in ("replay", "policies"):
            for path in (self._path / folder).glob("*"):
                if self._name(path) not in named:
                    path.unlink()

    def _name(self, path: Path) -> str:
        return path.relative_to(self._path).as_posix()


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Reads an `.npz` file; object arrays, which can execute code, are refused."""
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def _npz_writer(arrays: Mapping[str, np.ndarray]) -> Callable[[BinaryIO], None]:
    return lambda file: np.savez(file, **arrays)  # type: ignore[arg-type]


def _written(path: Path, write: Callable[[BinaryIO], None]) -> dict[str, Any]:
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        write(file)
    described = _sealed(temporary)
    temporary.rename(path)
    sync_directory(path.parent)
    return described


def _sealed(path: Path) -> dict[str, Any]:
    _sync(path)
    return _described(path)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _described(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}
