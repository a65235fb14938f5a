"""Checkpoints of a run: immutable parts, and a manifest that is written last.

    runs/cheetah/
      config.json                       settings
      lock                              names the process that trains it
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
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from eagerly.buffers import RowBuffer
from eagerly.training.arrays import npy_chunks, npz_chunks
from eagerly.training.files import (
    cut,
    described,
    is_regular,
    sync,
    sync_directory,
    write_file,
)
from eagerly.training.manifest import (
    FOLDER,
    PART,
    Manifest,
    Segment,
    encoded,
    folder_name,
    published,
)

Described = dict[str, Any]
Say = Callable[[str], None]


class Checkpoints:
    """Writes the checkpoints of one run directory, and removes what no longer belongs to it.

    Args:
        path: The run directory.
        keep: How many of the newest are kept.
    """

    def __init__(self, path: Path, keep: int) -> None:
        self._path = path
        self._keep = keep
        self._grown = _Grown()
        self._published: list[Manifest] | None = None  # those on disk, once they were read

    def save(
        self,
        *,
        steps: int,
        updates: int,
        write_networks: Callable[[str], None],
        policy: Mapping[str, np.ndarray],
        best: tuple[int, Mapping[str, np.ndarray]] | None,
        buffer: RowBuffer,
        episodes: Mapping[str, np.ndarray],
        growing: Sequence[Path],
        state: dict[str, Any],
        conditions: dict[str, Any],
        config: dict[str, Any],
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
            config: What `config.json` holds.

        Raises:
            OSError: If something cannot be written; nothing is published then, and what was
                written of it is removed.
        """
        if self._published is None:
            self._published = published(self._path)
        previous = self._published
        if previous and (previous[-1].steps, previous[-1].updates) == (steps, updates):
            return
        try:
            parts = self._write_parts(steps, updates, write_networks, policy, episodes)
            manifest = Manifest(
                steps=steps,
                updates=updates,
                parts=parts,
                replay=self._append_replay(buffer, previous, parts),
                best=self._keep_best(best, previous, parts),
                growing={self._name(path): self._grown.described(path) for path in growing},
                state=state,
                conditions=conditions,
                config=config,
            )
            folder = self._path / manifest.folder
            for directory in (self._path, folder.parent, folder):
                sync_directory(directory)
            write_file(folder / "manifest.json", [encoded(manifest)])
        except BaseException:
            with suppress(OSError):
                self._clean(previous)
            raise
        sync_directory(folder.parent)
        self._published = [*previous, manifest][-self._keep :]
        with suppress(OSError):  # what is left is removed the next time
            self._clean(self._published)

    def _write_parts(
        self,
        steps: int,
        updates: int,
        write_networks: Callable[[str], None],
        policy: Mapping[str, np.ndarray],
        episodes: Mapping[str, np.ndarray],
    ) -> dict[str, Described]:
        folder = self._path / folder_name(steps, updates)
        if folder.exists():
            shutil.rmtree(folder)
        folder.parent.mkdir(exist_ok=True)
        folder.mkdir()
        write_networks(str(folder / "networks"))
        parts = {}
        for path in sorted(folder.glob("networks.*")):
            sync(path)
            parts[self._name(path)] = described(path)
        for name, arrays in (("policy", policy), ("episodes", episodes)):
            path = folder / f"{name}.npz"
            parts[self._name(path)] = write_file(path, npz_chunks(arrays))
        return parts

    def _append_replay(
        self, buffer: RowBuffer, previous: list[Manifest], parts: dict[str, Described]
    ) -> tuple[Segment, ...]:
        oldest = buffer.added - len(buffer)
        last = previous[-1] if previous else None
        kept = [segment for segment in last.replay if segment.stop > oldest] if last else []
        start = max(kept[-1].stop if kept else 0, oldest)
        if last:
            parts.update({segment.path: last.parts[segment.path] for segment in kept})
        if start < buffer.added:
            path = self._path / "replay" / f"{start:012d}-{buffer.added:012d}.npy"
            path.parent.mkdir(exist_ok=True)
            rows = buffer.stored(start, buffer.added)
            parts[self._name(path)] = write_file(path, npy_chunks(rows))
            kept.append(Segment(start, buffer.added, self._name(path)))
        return tuple(kept)

    def _keep_best(
        self,
        best: tuple[int, Mapping[str, np.ndarray]] | None,
        previous: list[Manifest],
        parts: dict[str, Described],
    ) -> str | None:
        if best is None:
            return None
        path = self._path / "policies" / f"best-{best[0]:012d}.npz"
        name = self._name(path)
        written = previous[-1].parts.get(name) if previous else None
        if written is None:
            path.parent.mkdir(exist_ok=True)
            written = write_file(path, npz_chunks(best[1]))
        parts[name] = written
        return name

    def cut_back(self, manifest: Manifest | None, say: Say) -> None:
        """Removes what was written after a checkpoint, or everything where there is none.

        Tables and event files are cut to the lengths they had, so that a step that is done again
        stands in them once; newer files and unpublished checkpoints go.

        Args:
            manifest: The checkpoint.
            say: Takes a line about each file that is not as it was.
        """
        growing = manifest.growing if manifest else {}
        for path in [*self._path.glob("events.out.tfevents.*"), self._path / "evaluations.csv"]:
            if self._name(path) not in growing:
                path.unlink(missing_ok=True)
        for name, expected in growing.items():
            path = self._path / name
            if not is_regular(path) or path.stat().st_size < expected["bytes"]:
                say(f"{path} is missing or shorter than it was: points of its curves are lost")
                if not is_regular(path):  # a link would lead elsewhere, a pipe would wait
                    path.unlink(missing_ok=True)
                continue
            cut(path, expected["bytes"])
            if self._grown.described(path) != expected and "sha256" in expected:
                say(f"{path} is damaged: points of its curves may be lost or wrong")
        found = published(self._path)
        kept = [m for m in found if manifest and m.folder <= manifest.folder]
        for newer in found[len(kept) :]:
            (self._path / newer.folder / "manifest.json").unlink()
        self._published = kept[-self._keep :]
        self._clean(self._published)

    def _clean(self, manifests: list[Manifest]) -> None:
        """Removes what no manifest names, of the names that this class gives."""
        folders = {manifest.folder for manifest in manifests}
        for folder in (self._path / "checkpoints").glob("*"):
            if self._name(folder) not in folders and FOLDER.fullmatch(self._name(folder)):
                (folder / "manifest.json").unlink(missing_ok=True)  # no longer counts
                shutil.rmtree(folder)
        named = {name for manifest in manifests for name in manifest.parts}
        for path in _each(self._path, "replay/*", "policies/*"):
            if self._name(path) not in named and _OURS.fullmatch(self._name(path)):
                path.unlink()
        for path in _each(self._path, "config.json.tmp", "checkpoints/*/*.tmp", "videos/*.tmp.mp4"):
            path.unlink()

    def _name(self, path: Path) -> str:
        return path.relative_to(self._path).as_posix()


_OURS = re.compile(rf"({PART.pattern})(\.tmp)?")


def _each(run: Path, *patterns: str) -> Iterable[Path]:
    return (path for pattern in patterns for path in run.glob(pattern))


class _Grown:
    """Describes files that grow, reading of each only what is new since the last time."""

    def __init__(self) -> None:
        self._digests: dict[Path, tuple[int, Any]] = {}

    def described(self, path: Path) -> Described:
        sync(path)
        size, digest = self._digests.get(path, (0, hashlib.sha256()))
        with path.open("rb") as file:
            file.seek(size)
            while chunk := file.read(2**20):
                digest.update(chunk)
                size += len(chunk)
        self._digests[path] = (size, digest)
        return {"bytes": size, "sha256": digest.hexdigest()}
