"""Arrays in NumPy file formats, read without pickle and with validated headers."""

from __future__ import annotations

import io
import itertools
import math
import os
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np

# Maximum number of rows of an array without elements, which the file size does not limit. It equals
# the maximum of num_envs.
_MOST_EMPTY = 4096
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def npy_chunks(array: np.ndarray, name: str = "the array") -> Iterator[Any]:
    """Yields the content of an `.npy` file, without copying contiguous arrays.

    Raises:
        ValueError: If `read_npy` would reject the array.
    """
    array = np.asarray(array, order="C")
    _check(array.shape, array.dtype, name)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(array))
    yield header.getvalue()
    yield array.reshape(-1).view(np.uint8).data


def npz_chunks(arrays: Mapping[str, np.ndarray]) -> Iterator[bytes]:
    """Yields the content of an uncompressed `.npz` file. Equal arrays give identical bytes.

    Raises:
        ValueError: If `read_npz` would reject an array.
    """
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            member = zipfile.ZipInfo(f"{name}.npy")  # its date is fixed (1980)
            with archive.open(member, "w", force_zip64=True) as file:
                file.writelines(npy_chunks(array, name))
    yield content.getvalue()


def read_npy(file: BinaryIO, name: str) -> np.ndarray:
    """Reads an `.npy` file.

    Args:
        file: The open file.
        name: File name for error messages.

    Raises:
        ValueError: If the file is not in `.npy` format, holds objects, or its size does not match
            its header.
    """
    return _array(file, os.fstat(file.fileno()).st_size, name)


def read_npz(file: BinaryIO, name: str) -> dict[str, np.ndarray]:
    """Reads an uncompressed `.npz` file.

    Args:
        file: The open file.
        name: File name for error messages.

    Raises:
        ValueError: If the file is not in `.npz` format, is compressed or encrypted, or contains an
            array that `read_npy` would reject.
    """
    arrays = {}
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            for member in members:
                if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
                    raise ValueError(f"{name}: {member.filename} is compressed or encrypted")
            if sum(member.file_size for member in members) > os.fstat(file.fileno()).st_size:
                raise ValueError(f"{name} is too small for the sizes that it declares")
            for member in members:
                part = f"{name}: {member.filename}"
                content = archive.read(member)
                array = _array(io.BytesIO(content), len(content), part)
                arrays[member.filename.removesuffix(".npy")] = array
    except (zipfile.BadZipFile, NotImplementedError, EOFError) as error:
        raise ValueError(f"{name} is not a valid .npz file: {error}") from error
    return arrays


def _array(file: BinaryIO, size: int, name: str) -> np.ndarray:
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"{name}: unsupported .npy format version {version}")
    shape, fortran, dtype = _HEADERS[version](file)
    _check(shape, dtype, name)
    expected = math.prod(shape) * dtype.itemsize
    if size - file.tell() != expected:
        raise ValueError(f"{name}: header declares {expected} bytes; got {size - file.tell()}")
    return np.frombuffer(file.read(expected), dtype).reshape(shape, order="F" if fortran else "C")


def _check(shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> None:
    if dtype.hasobject:
        raise ValueError(f"{name}: object arrays could execute code and are not supported")
    if not dtype.itemsize:
        raise ValueError(f"{name}: zero-size dtype {dtype.str} is not supported")
    rows = math.prod(itertools.takewhile(bool, shape))
    if not math.prod(shape) and rows > _MOST_EMPTY:
        raise ValueError(f"{name}: at most {_MOST_EMPTY} empty rows are supported; got {rows}")
