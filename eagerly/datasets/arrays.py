"""Reads columns of logged data from `.npz` files and folders of `.npy` files."""

from __future__ import annotations

import os
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from eagerly.datasets.fields import Field, Fields
from eagerly.datasets.limits import check_lengths, check_size, size_of
from eagerly.errors import UsageError
from eagerly.storage.files import RunFiles

_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class _Array:
    """An array in `.npy` format that is read row by row, without pickle.

    Args:
        file: The open file or archive member.
        size: Its size in bytes.
        name: Its name, for messages.
        field: The field that it contains.
    """

    def __init__(self, file: IO[bytes], size: int, name: str, field: Field) -> None:
        self._file, self._name = file, name
        version = np.lib.format.read_magic(file)
        if version not in _HEADERS:
            raise UsageError(f"{name} must have .npy format version 1 or 2; got {version}")
        self.shape, fortran, self.dtype = _HEADERS[version](file)
        if any(n < 0 for n in self.shape):
            raise UsageError(f"{name} must have a shape without negative numbers; got {self.shape}")
        if fortran and len(self.shape) > 1:
            field.check(self.shape, self.dtype)  # a transposed array is in Fortran order, too
            raise UsageError(
                f"{name} must be in C order; got Fortran order: save np.ascontiguousarray(array)"
            )
        self._left = self.shape[0] if self.shape else 0  # rows to read; `check` rejects a scalar
        expected, got = size_of(self.shape, self.dtype), size - file.tell()
        if not self.dtype.hasobject and got != expected:
            raise UsageError(
                f"{name} must contain the {expected:,} bytes that its header declares; got {got:,}"
            )

    def read(self, count: int) -> np.ndarray:
        """Returns the next rows, at most `count`."""
        count = min(count, self._left)
        self._left -= count
        size = count * size_of(self.shape[1:], self.dtype)
        if len(content := self._file.read(size)) < size:
            raise UsageError(f"{self._name} must contain complete rows; the file ends within one")
        return np.frombuffer(content, self.dtype).reshape(count, *self.shape[1:])


class ArrayTable:
    """Arrays of equal length, read in parallel.

    Args:
        path: The data file, for messages.
        fields: The fields, one for each array.
        arrays: The arrays.
    """

    def __init__(self, path: str, fields: Fields, arrays: dict[str, Any]) -> None:
        for field in fields:
            field.check(arrays[field.name].shape, arrays[field.name].dtype)
        check_lengths(path, {name: array.shape[0] for name, array in arrays.items()})
        self._arrays = arrays

    def read(self, count: int) -> dict[str, np.ndarray]:
        """Returns the next rows of each array, at most `count`."""
        return {name: array.read(count) for name, array in self._arrays.items()}


def npz_names(path: Path) -> set[str]:
    """Returns the names of the arrays in an `.npz` file."""
    with _archive(path) as archive:
        return {name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")}


@contextmanager
def npz_table(path: Path, fields: Fields) -> Iterator[ArrayTable]:
    """Opens the arrays of an `.npz` file, which may be compressed."""
    with _archive(path) as archive, ExitStack() as opened:
        members = [archive.getinfo(f"{field.name}.npy") for field in fields]
        for member in members:
            if member.compress_type not in _COMPRESSIONS or member.flag_bits & 1:
                raise UsageError(
                    f"{path}: {member.filename} must be stored or deflated, as numpy.savez and "
                    "numpy.savez_compressed write it; got another compression or encryption"
                )
        declared = sum(member.file_size for member in members)
        check_size(str(path), declared, path.stat().st_size)
        arrays = {
            field.name: _Array(
                opened.enter_context(archive.open(member)),
                member.file_size,
                f"{path}: {field.name}",
                field,
            )
            for field, member in zip(fields, members, strict=True)
        }
        yield ArrayTable(str(path), fields, arrays)


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    with RunFiles(path.parent).open(path.name) as file, zipfile.ZipFile(file) as archive:
        twice = [name for name, count in Counter(archive.namelist()).items() if count > 1]
        if twice:
            raise UsageError(f"{path} must contain each array once; got {twice[0]} several times")
        yield archive


def folder_names(path: Path) -> set[str]:
    """Returns the names of the arrays in a folder, such as "observations" or "observations/goal".

    Only the folders `observations`, `next_observations` and `actions` are searched.
    """
    files, found = RunFiles(path), set[str]()
    left = [""]
    while left:
        folder = left.pop()
        found |= {name.removesuffix(".npy") for name in files.names(folder) if ".npy" in name}
        left += [
            name
            for name in files.folders(folder)
            if name.partition("/")[0] in ("observations", "next_observations", "actions")
        ]
    return found


@contextmanager
def folder_table(path: Path, fields: Fields) -> Iterator[ArrayTable]:
    """Opens the arrays of a folder."""
    files = RunFiles(path)
    with ExitStack() as opened:
        arrays = {}
        for field in fields:
            file = opened.enter_context(files.open(f"{field.name}.npy"))
            size = os.fstat(file.fileno()).st_size
            arrays[field.name] = _Array(file, size, f"{path}/{field.name}.npy", field)
        yield ArrayTable(str(path), fields, arrays)
