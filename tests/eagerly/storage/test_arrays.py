"""Arrays in files: they come back as they were, and headers that lie are refused."""

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
def test_an_array_comes_back_and_numpy_reads_it_too(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(b"".join(bytes(chunk) for chunk in npy_chunks(ARRAYS[name])))
    assert same(read_npy(path), ARRAYS[name])
    assert same(np.load(path), ARRAYS[name])


def test_an_archive_comes_back_and_numpy_reads_it_too(tmp_path: Path) -> None:
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
            "its header says 4000000000000",
        ),
        (npy(b"{'descr': '|S0', 'fortran_order': False, 'shape': (9,)}\n", b""), "have no bytes"),
        (npy(b"__import__('os').abort()\n", b""), "Cannot parse|malformed"),
        (
            npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000, 0)}\n", b""),
            "1000000000 empty rows; at most 4096",
        ),
        (
            npy(b"{'descr': '<f4', 'fortran_order': True, 'shape': (1, 5000, 0, 2)}\n", b""),
            "5000 empty rows",
        ),
        (b"", "magic"),
        (b"\x93NUMPY\x09\x00", "version"),
    ],
)
def test_what_is_not_an_array_or_lies_about_itself_is_refused(
    tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_npy(tmp_path / "x.npy")
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", content)
    with pytest.raises(ValueError, match=message):
        read_npz(tmp_path / "x.npz")


def test_compressed_archives_and_what_is_none_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez_compressed(path, zeros=np.zeros(10**6))  # a bomb needs compression
    with pytest.raises(ValueError, match="is compressed"):
        read_npz(path)
    np.savez(path, x=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="execute code"):
        read_npz(path)
    content = io.BytesIO(b"PK nothing")
    path.write_bytes(content.getvalue())
    with pytest.raises(ValueError, match="not an archive"):
        read_npz(path)


@pytest.mark.parametrize(
    "array",
    [np.array([{}]), np.zeros((5000, 0)), np.zeros(2, [])],
    ids=["objects", "empty", "no bytes"],
)
def test_nothing_is_written_that_would_not_be_read(array: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"(not|are) read"):
        list(npz_chunks({"x": array}))
