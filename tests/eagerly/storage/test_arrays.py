"""Arrays survive a round trip through files. Files with false headers are rejected."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from eagerly.storage import arrays
from eagerly.storage.arrays import npy_chunks, npz_chunks

ARRAYS = {
    "matrix": np.arange(6, dtype=np.float32).reshape(2, 3),
    "empty": np.zeros((0, 4), np.float64),
    "no features": np.zeros((4096, 0), np.float32),
    "number": np.array(3),
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
}


def read_npy(path: Path) -> np.ndarray:
    with path.open("rb") as file:
        return arrays.read_npy(file, path.name)


def read_npz(path: Path) -> dict[str, np.ndarray]:
    with path.open("rb") as file:
        return arrays.read_npz(file, path.name)


def same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and np.array_equal(one, other)


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_survives_a_round_trip_and_numpy_can_read_it(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(b"".join(bytes(chunk) for chunk in npy_chunks(ARRAYS[name])))
    assert same(read_npy(path), ARRAYS[name])
    assert same(np.load(path), ARRAYS[name])


def test_an_archive_survives_a_round_trip_and_numpy_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(b"".join(npz_chunks(ARRAYS)))
    assert path.read_bytes() == b"".join(npz_chunks(ARRAYS))
    found = read_npz(path)
    assert found.keys() == ARRAYS.keys()
    assert all(same(found[name], values) for name, values in ARRAYS.items())
    with np.load(path) as archive:
        assert all(same(archive[name], values) for name, values in ARRAYS.items())


def npy(header: bytes, data: bytes) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (npy(b"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}\n", b"x"), "execute code"),
        (
            npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (10**15,)}\n", b"abcd"),
            "Cannot parse|malformed",
        ),
        (
            npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,)}\n", b"abcd"),
            "header declares 4000000000000 bytes",
        ),
        (npy(b"{'descr': '|S0', 'fortran_order': False, 'shape': (9,)}\n", b""), "zero-size"),
        (npy(b"__import__('os').abort()\n", b""), "Cannot parse|malformed"),
        (
            npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000, 0)}\n", b""),
            "at most 4096 empty rows are supported; got 1000000000",
        ),
        (
            npy(b"{'descr': '<f4', 'fortran_order': True, 'shape': (1, 5000, 0, 2)}\n", b""),
            "got 5000",
        ),
        (b"", "magic"),
        (b"\x93NUMPY\x09\x00", "version"),
    ],
)
def test_invalid_files_and_false_headers_are_rejected(
    tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_npy(tmp_path / "x.npy")
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", content)
    with pytest.raises(ValueError, match=message):
        read_npz(tmp_path / "x.npz")


def test_compressed_and_invalid_archives_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez_compressed(path, zeros=np.zeros(10**6))  # rejected, because it could be a zip bomb
    with pytest.raises(ValueError, match="is compressed"):
        read_npz(path)
    np.savez(path, x=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="execute code"):
        read_npz(path)
    content = io.BytesIO(b"PK nothing")
    path.write_bytes(content.getvalue())
    with pytest.raises(ValueError, match=r"not a valid \.npz file"):
        read_npz(path)


@pytest.mark.parametrize(
    "array",
    [np.array([{}]), np.zeros((5000, 0)), np.zeros(2, [])],
    ids=["objects", "empty", "no bytes"],
)
def test_arrays_that_the_reader_would_reject_are_not_written(array: np.ndarray) -> None:
    with pytest.raises(ValueError, match="supported"):
        list(npz_chunks({"x": array}))
