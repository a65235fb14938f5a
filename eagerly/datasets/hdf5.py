"""Reads logged data from HDF5 files, in the layouts of D4RL and Minari.

Links to other files, virtual datasets and filters that HDF5 loads as plugins are rejected. No
attribute is read, such as the environment specification of a Minari file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from eagerly.datasets.arrays import ArrayTable
from eagerly.datasets.fields import Field, Fields
from eagerly.datasets.limits import check_lengths, check_size, size_of
from eagerly.datasets.steps import EpisodeReturns, Steps, transitions_of_episode
from eagerly.errors import UsageError
from eagerly.storage.files import RunFiles

# HDF5's filters: deflate, shuffle and Fletcher's checksum; and LZF, which h5py contains.
_FILTERS = {1: "gzip", 2: "shuffle", 3: "fletcher32", 32000: "lzf"}
_MOST_CHUNK_BYTES = 2**26  # a chunk is decompressed as a whole
_METADATA_BYTES = 2**21
_EPISODE = re.compile(rb"episode_(\d{1,18})")


def has_episodes(names: Collection[str]) -> bool:
    """Returns whether the names in the root group are those of Minari's layout."""
    return any(_EPISODE.fullmatch(name.encode(errors="replace")) for name in names)


def h5py_module() -> Any:
    """Returns the module `h5py`.

    Raises:
        UsageError: If it is not installed.
    """
    try:
        import h5py
    except ImportError as error:
        raise UsageError("HDF5 files require h5py: pip install 'eagerly[offline]'") from error
    return h5py


class Hdf5File:
    """An open HDF5 file.

    Args:
        path: The file.
        file: The file, opened with h5py.
    """

    def __init__(self, path: Path, file: Any) -> None:
        self._h5py, self._path, self._root = h5py_module(), path, file.id
        self._size, self._declared = path.stat().st_size, 0

    def names(self) -> set[str]:
        """Returns the names in the root group."""
        return {name.decode(errors="replace") for name in self._root}

    def table(self, fields: Fields) -> ArrayTable:
        """Opens the fields of a D4RL file."""
        arrays = {field.name: self.column(self._root, field) for field in fields}
        return ArrayTable(str(self._path), fields, arrays)

    def episodes(self) -> list[bytes]:
        """Returns the names of the episodes in a Minari file, by number."""
        found = [match for name in self._root if (match := _EPISODE.fullmatch(name))]
        return [match[0] for match in sorted(found, key=lambda match: int(match[1]))]

    def transitions(self, fields: Fields, count: int, returns: EpisodeReturns) -> Iterator[Steps]:
        """Yields the transitions of all episodes of a Minari file, at most `count` at a time."""
        room = count
        for name in self.episodes():
            told, columns, length = self._episode(name, fields)
            left = length
            last: list[np.ndarray] = []
            while left:
                take = min(left, room)
                left -= take
                steps = _read(fields, columns, take, last)
                last = [part[-1:] for part in steps.observations]
                ended = steps.terminated | steps.truncated
                if ended[: None if left else -1].any():
                    at = length - left - take + int(ended.argmax())
                    raise UsageError(
                        f"{told} must end with its last step; got the end of an episode in step "
                        f"{at:,} of {length:,}"
                    )
                if not left:
                    ended[-1] = True
                returns.add(steps.rewards, ended)
                yield transitions_of_episode(steps, at_end=not left)
                room = room - take or count

    def first_episode(self, fields: Fields) -> dict[str, _Column]:
        """Opens the fields of the first episode of a Minari file."""
        return self._episode(self.episodes()[0], fields)[1]

    def _episode(self, name: bytes, fields: Fields) -> tuple[str, dict[str, _Column], int]:
        """Returns the name of an episode for messages, its columns, and its number of steps."""
        told = f"{self._path}: {name.decode()}"
        group = self._opened(self._root, name, told)
        columns = {}
        for field in fields:
            field.begin(told)
            columns[field.name] = self.column(group, field, told)
        lengths = {key: column.shape[0] for key, column in columns.items()}
        for field in fields.observations:
            lengths[field.name] -= 1  # the observation after the last step
        check_lengths(f"{told} (without the last observation)", lengths)
        return told, columns, lengths[fields.rewards.name]

    def column(self, group: Any, field: Field, told: str = "") -> _Column:
        """Opens a field in a group and validates it without reading data."""
        h5py, told = self._h5py, f"{told or self._path}: {field.name}"
        found = group
        for part in field.name.split("/"):
            if not isinstance(found, h5py.h5g.GroupID):
                raise UsageError(f"{told} must be in a group; got a dataset in its place")
            found = self._opened(found, part.encode(), told)
        if not isinstance(found, h5py.h5d.DatasetID):
            raise UsageError(f"{told} must be a dataset; got a group or a named datatype")
        shape, dtype = found.shape, found.dtype
        if shape is None:
            raise UsageError(f"{told} must be an array; got an empty dataset")
        field.check(shape, dtype)
        self._check_storage(found, shape, dtype, told)
        self._declared += size_of(shape, dtype)
        check_size(str(self._path), self._declared, self._size)
        return _Column(h5py, found, shape, dtype)

    def _opened(self, group: Any, name: bytes, told: str) -> Any:
        h5py = self._h5py
        try:
            kind = group.links.get_info(name).type
        except (KeyError, RuntimeError):
            raise UsageError(f"{told} must be in the file; got no {name.decode()!r}") from None
        if kind != h5py.h5l.TYPE_HARD:
            what = {h5py.h5l.TYPE_SOFT: "a soft link", h5py.h5l.TYPE_EXTERNAL: "an external link"}
            raise UsageError(
                f"{told} must be stored in place; got {what.get(kind, 'a link')}: copy the data"
            )
        return h5py.h5o.open(group, name)

    def _check_storage(
        self, dataset: Any, shape: tuple[int, ...], dtype: np.dtype[Any], told: str
    ) -> None:
        h5d, plist = self._h5py.h5d, dataset.get_create_plist()
        layout = plist.get_layout()
        if layout == h5d.VIRTUAL or plist.get_external_count():
            what = "a virtual dataset" if layout == h5d.VIRTUAL else "a dataset in another file"
            raise UsageError(f"{told} must be stored in place; got {what}: copy the data")
        if not dataset.get_storage_size() and all(shape):
            raise UsageError(f"{told} must contain data; got a dataset that was never written")
        for index in range(plist.get_nfilters()):
            number, _, _, label = plist.get_filter(index)
            if number not in _FILTERS:
                text = label.decode(errors="replace")
                raise UsageError(
                    f"{told} must be compressed with {', '.join(_FILTERS.values())} or not at all; "
                    f"got filter {number} ({text})"
                )
        if layout == h5d.CHUNKED:
            size = size_of(plist.get_chunk(), dtype)
            if size > _MOST_CHUNK_BYTES:
                raise UsageError(
                    f"{told} must have chunks of at most {_MOST_CHUNK_BYTES:,} bytes; got {size:,}"
                )


class _Column:
    """A dataset that is read row by row, through h5py's low-level interface, which is faster.

    Args:
        h5py: The module.
        dataset: The identifier of the dataset.
        shape, dtype: Those of the dataset.
    """

    def __init__(
        self, h5py: Any, dataset: Any, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        self._h5s, self._dataset, self._place = h5py.h5s, dataset, 0
        self.shape, self.dtype = shape, dtype

    def read(self, count: int) -> np.ndarray:
        """Returns the next rows, at most `count`."""
        start = self._place
        self._place = min(start + count, self.shape[0])
        rows = np.empty((self._place - start, *self.shape[1:]), self.dtype)
        if rows.shape == self.shape:
            self._dataset.read(self._h5s.ALL, self._h5s.ALL, rows)
        elif rows.size:
            stored = self._dataset.get_space()
            stored.select_hyperslab((start, *(0 for _ in self.shape[1:])), rows.shape)
            self._dataset.read(self._h5s.create_simple(rows.shape), stored, rows)
        return rows


def _read(fields: Fields, columns: dict[str, _Column], count: int, last: list[np.ndarray]) -> Steps:
    """Returns the next steps of an episode, with one observation more.

    Args:
        fields: The fields.
        columns: The columns of the episode.
        count: Number of steps.
        last: The observation before, which is the first one here; empty at the start.
    """

    def values(field: Field, count: int = count) -> np.ndarray:
        return field.convert(columns[field.name].read(count))

    observations = [values(field, count + (not last)) for field in fields.observations]
    if last:
        pairs = zip(last, observations, strict=True)
        observations = [np.concatenate(pair) for pair in pairs]
    return Steps(
        observations,
        [values(field) for field in fields.actions],
        values(fields.rewards),
        values(fields.terminated),
        values(fields.truncated),
        [],
    )


@contextmanager
def hdf5_file(path: Path) -> Iterator[Hdf5File]:
    """Opens an HDF5 file for reading."""
    h5py = h5py_module()
    RunFiles(path.parent).open(path.name).close()  # raises unless it is a regular file
    with h5py.File(path, "r") as file:
        # By default, the metadata of many episodes fills a cache of more than 100 MiB.
        cache = file.id.get_mdc_config()
        cache.set_initial_size = True
        cache.initial_size = cache.min_size = cache.max_size = _METADATA_BYTES
        cache.incr_mode = cache.flash_incr_mode = cache.decr_mode = 0
        file.id.set_mdc_config(cache)
        yield Hdf5File(path, file)
