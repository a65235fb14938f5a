"""Wrong and hostile data files are rejected in one sentence, before much memory is used."""

from __future__ import annotations

import io
import os
import pickle
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Space, Text

from eagerly.datasets import open_dataset
from eagerly.errors import UsageError
from tests.eagerly.datasets.files import (
    ACTIONS,
    OBSERVATIONS,
    arrays,
    csv_text,
    episode,
    write,
    write_minari,
)

Build = Callable[[Path], Path]
FLOAT = h5py.h5t.IEEE_F64LE


def changed(kind: str = "npz", /, **changes: Any) -> Build:
    """Returns a function that writes a file with changed fields; None omits a field."""

    def build(path: Path) -> Path:
        fields = arrays() | changes
        return write(path, kind, {k: v for k, v in fields.items() if v is not None})

    return build


def header(text: str) -> bytes:
    """Returns the beginning of an `.npy` file with any header."""
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def described(shape: str, dtype: str = "'<f4'", fortran: bool = False) -> bytes:
    return header(f"{{'descr': {dtype}, 'fortran_order': {fortran}, 'shape': {shape}}}\n")


def zipped(name: str = "observations", content: bytes | None = None, **more: Any) -> Build:
    """Returns a function that writes an `.npz` file in which one member has other content."""

    def build(path: Path) -> Path:
        with zipfile.ZipFile(path / "data.npz", "w", **more) as archive:
            for field, values in arrays().items():
                file = io.BytesIO()
                np.save(file, values)
                own = content if field == name and content is not None else file.getvalue()
                archive.writestr(f"{field}.npy", own)
        return path / "data.npz"

    return build


def edited(build: Build, edit: Callable[[bytes], bytes]) -> Build:
    """Returns a function that writes a file and edits its bytes."""

    def built(path: Path) -> Path:
        file = build(path)
        file.write_bytes(edit(file.read_bytes()))
        return file

    return built


def twice(path: Path) -> Path:
    file = changed()(path)
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(file, "a") as archive:
        archive.writestr("rewards.npy", b"")
    return file


def bomb(path: Path) -> Path:
    rows = 10**6
    content = described(f"({rows}, 2)") + bytes(rows * 8)
    file = path / "data.npz"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in arrays():
            for copy in ("", "next_") if name == "observations" else ("",):
                archive.writestr(f"{copy}{name}.npy", content)
    return file


def in_folder(name: str, replace: Callable[[Path], Any]) -> Build:
    """Returns a function that writes `.npy` files and replaces one of them."""

    def build(path: Path) -> Path:
        folder = changed("npy")(path)
        file = folder / f"{name}.npy"
        replace(file)
        return folder

    return build


def linked(file: Path) -> None:
    file.symlink_to(file.rename(file.with_name("other.npy")))


def piped(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def at(name: str, make: Callable[[Path], Any]) -> Build:
    """Returns a function that creates something at a path."""

    def build(path: Path) -> Path:
        make(path / name)
        return path / name

    return build


def hdf5(name: str, put: Callable[[Any, str], Any]) -> Build:
    """Returns a function that writes a D4RL file in which one field is replaced."""

    def build(path: Path) -> Path:
        fields = arrays()
        fields.pop(name)
        file = write(path, "hdf5", fields)
        with h5py.File(file, "a") as opened:
            put(opened, name)
        return file

    return build


def put_link(file: Any, name: str) -> None:
    file[name] = h5py.SoftLink("/actions")


def put_external_link(file: Any, name: str) -> None:
    file[name] = h5py.ExternalLink("/etc/passwd", "/x")


def put_virtual(file: Any, name: str) -> None:
    layout = h5py.VirtualLayout((7, 2), "f4")
    layout[:] = h5py.VirtualSource("/etc/passwd", "x", (7, 2))
    file.create_virtual_dataset(name, layout)


def put_external_data(file: Any, name: str) -> None:
    file.create_dataset(name, (7, 2), "f4", external=[("/etc/passwd", 0, 56)])


def put_filter(file: Any, name: str) -> None:
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((7, 2))
    plist.set_filter(32015, h5py.h5z.FLAG_OPTIONAL, (3,))
    space = h5py.h5s.create_simple((7, 2))
    h5py.Dataset(h5py.h5d.create(file.id, name.encode(), FLOAT, space, plist))[:] = 1


def put_one_chunk(file: Any, name: str) -> None:
    file.create_dataset(name, (10**9, 2), "f8", chunks=(10, 2))[:10] = 1.0


def put_cycle(file: Any, name: str) -> None:
    file[name] = file["/"]


def put(*args: Any, **more: Any) -> Callable[[Any, str], Any]:
    return lambda file, name: file.create_dataset(name, *args, **more)


def minari(*episodes: Any) -> Build:
    return lambda path: write_minari(path / "data.hdf5", *episodes)


def minari_link(path: Path) -> Path:
    file = write_minari(path / "data.hdf5", episode())
    with h5py.File(file, "a") as opened:
        opened["episode_1"] = h5py.SoftLink("/episode_0")
    return file


def text(edit: Callable[[str], str | bytes]) -> Build:
    """Returns a function that writes an edited CSV file."""

    def build(path: Path) -> Path:
        found = edit(csv_text(arrays()))
        file = path / "data.csv"
        file.write_bytes(found.encode() if isinstance(found, str) else found)
        return file

    return build


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in episode().items() if key != name}


def values(**places: Any) -> np.ndarray:
    """Returns seven actions, of which some are replaced."""
    found = np.zeros((7, 1))
    for place, value in places.items():
        found[int(place[1:])] = value
    return found


NAN = np.full((7, 2), np.nan)
LONG = np.zeros((8, 2))
OBJECTS = np.full((7, 2), None)
SCALARS = np.zeros(7)

CASES: dict[str, tuple[Build, str]] = {
    # names and formats
    "missing": (at("data.npz", lambda path: None), "no such file"),
    "suffix": (at("data.pkl", lambda path: path.write_bytes(b"")), "ends in .pkl"),
    "link": (at("data.npz", lambda path: path.symlink_to("/etc/passwd")), "got a link"),
    "folder link": (at("data", lambda path: path.symlink_to("/etc")), "got a link"),
    "pipe": (at("data.npz", os.mkfifo), "regular file"),
    "HDF5 pipe": (at("data.hdf5", os.mkfifo), "regular file"),
    "CSV folder": (at("data.csv", Path.mkdir), "got nothing"),
    "empty folder": (at("data", Path.mkdir), "must contain observations, actions"),
    # .npz
    "no npz": (at("data.npz", lambda path: path.write_bytes(b"PK\3\4")), "not a zip file"),
    "pickle": (at("data.npz", lambda path: path.write_bytes(pickle.dumps(1))), "not a zip file"),
    "pickled member": (zipped(content=pickle.dumps([1])), "magic string"),
    "objects": (changed(observations=OBJECTS), "got objects, which could execute code"),
    "nested objects": (zipped(content=described("(7, 2)", "[('a', '|O')]")), "got objects"),
    "structured": (changed(observations=np.zeros(7, "f4,f4")), "must contain numbers"),
    "strings": (changed(observations=np.full((7, 2), "1")), "must contain numbers"),
    "complex": (changed(rewards=SCALARS * 1j), "got complex128"),
    "no timeouts": (changed(timeouts=None), "False everywhere if nothing did"),
    "no actions": (changed(actions=None), "must contain observations, actions"),
    "columns": (changed(observations=np.zeros((7, 3))), "shape [N, 2]; got [7, 3]"),
    "no axis": (changed(actions=SCALARS), "shape [N, 1]; got [7]"),
    "reward axis": (changed(rewards=np.zeros((7, 1))), "shape [N]; got [7, 1]"),
    "scalar": (changed(rewards=np.float64(1)), "shape [N]; got []"),
    "lengths": (changed(observations=LONG), "8 steps of observations, but 7 of actions"),
    "next length": (changed(next_observations=LONG), "but 8 of next_observations"),
    "NaN": (changed(observations=NAN), "finite in float32; got nan in row 0, dimension 0"),
    "infinite reward": (changed(rewards=SCALARS + np.inf), "finite in float32; got inf"),
    "large number": (changed(rewards=SCALARS + 1e300), "finite in float32; got 1e+300"),
    "flag": (changed(terminals=SCALARS + 2), "terminals must be True, False, 1 or 0; got 2.0"),
    "fraction": (changed(timeouts=SCALARS + 0.5), "1 or 0; got 0.5"),
    "bounds": (
        changed(actions=values(_1=0.5, _4=-0.9)),
        "got 2 of 7 rows outside, the worst with -0.9 in row 4, dimension 0, outside [-0.4, 0.4]",
    ),
    "no rows": (changed(**{k: v[:0] for k, v in arrays().items()}), "got 0 steps"),
    "no transition": (changed(timeouts=SCALARS + 1, terminals=SCALARS), "got 7 steps"),
    "huge header": (
        zipped(content=described("(10**15, 2)".replace("10**15", "1" + "0" * 15))),
        "8,000,000,000,000,000 bytes that its header declares; got 0",
    ),
    "overflow": (zipped(content=described(f"({2**62}, {2**62})")), "that its header declares"),
    "negative": (zipped(content=described("(-7, -2)") + bytes(56)), "without negative numbers"),
    "code": (zipped(content=header("__import__('os').abort()\n")), "reading failed: malformed"),
    "long header": (zipped(content=header(" " * 60_000)), "reading failed"),
    "open bracket": (zipped(content=header("{'shape': (\n")), "reading failed"),
    "control characters": (changed(**{"a\nb": SCALARS, "actions": None}), r"got a\nb"),
    "Fortran": (zipped(content=described("(7, 2)", fortran=True) + bytes(56)), "Fortran order"),
    "transposed": (
        changed(observations=arrays()["observations"].T),
        "observations must have shape [N, 2]; got [2, 7]",
    ),
    "version": (zipped(content=b"\x93NUMPY\x09\x00" + bytes(9)), "format version 1 or 2"),
    "short": (zipped(content=described("(7, 2)") + bytes(55)), "declares; got 55"),
    "twice": (twice, "each array once; got rewards.npy"),
    "bzip2": (zipped(compression=zipfile.ZIP_BZIP2), "stored or deflated"),
    "bomb": (bomb, "bytes of data; got headers that declare 48,000,"),
    "cut": (edited(changed(), lambda data: data[:-30]), "not a zip file"),
    "damaged": (
        edited(changed(), lambda data: data.replace(b"\0\0\x80\x3f", b"\0\0\x80\x40", 1)),
        "Bad CRC-32",
    ),
    # .npy
    "linked array": (in_folder("rewards", linked), "regular file, not a link"),
    "piped array": (in_folder("rewards", piped), "regular file"),
    "longer array": (
        in_folder("rewards", lambda f: f.write_bytes(f.read_bytes() + b"\0")),
        "data/rewards.npy must contain the 56 bytes",
    ),
    "object array": (in_folder("rewards", lambda f: np.save(f, np.array([{}] * 7))), "objects"),
    # HDF5
    "no HDF5": (at("data.hdf5", lambda path: path.write_bytes(b"\x89HDF")), "reading failed"),
    "cut HDF5": (edited(changed("hdf5"), lambda data: data[:-100]), "reading failed"),
    "soft link": (hdf5("observations", put_link), "stored in place; got a soft link"),
    "external link": (hdf5("observations", put_external_link), "got an external link"),
    "virtual": (hdf5("observations", put_virtual), "got a virtual dataset"),
    "external data": (hdf5("observations", put_external_data), "a dataset in another file"),
    "filter": (hdf5("observations", put_filter), "got filter 32015"),
    "cycle": (hdf5("observations", put_cycle), "must be a dataset; got a group"),
    "text": (hdf5("observations", put(data=["a"] * 7)), "got objects"),
    "compound": (hdf5("observations", put(data=np.zeros(7, "f4,f4"))), "must contain numbers"),
    "reference": (hdf5("rewards", put((7,), h5py.ref_dtype)), "got objects"),
    "empty": (hdf5("rewards", put(data=h5py.Empty("f4"))), "got an empty dataset"),
    "never written": (
        hdf5("observations", put((10**12, 2), chunks=(10, 2))),
        "never written",
    ),
    "HDF5 bomb": (hdf5("observations", put_one_chunk), "got headers that declare 16,000,000,"),
    "chunk": (
        hdf5("rewards", put(data=SCALARS, chunks=(2**24,), maxshape=(None,), compression=1)),
        "chunks of at most",
    ),
    "HDF5 shape": (hdf5("observations", put(data=np.zeros((7, 3)))), "got [7, 3]"),
    "HDF5 timeouts": (changed("hdf5", timeouts=None), "False everywhere"),
    "HDF5 NaN": (changed("hdf5", observations=NAN), "got nan"),
    # Minari
    "no episode": (
        at("data/main_data.hdf5", lambda p: p.parent.mkdir() or h5py.File(p, "w")),
        "got no episode",
    ),
    "linked episode": (minari_link, "episode_1 must be stored in place; got a soft link"),
    "last observation": (minari(episode(observations=np.zeros((3, 2)))), "2 steps of observations"),
    "second episode": (minari(episode(), episode(actions=np.zeros((3, 2)))), "episode_1: actions"),
    "early end": (minari(episode(terminations=[True, False, False])), "episode in step 0 of 3"),
    "no truncations": (
        minari(without("truncations")),
        "truncations must be in the file",
    ),
    "dataset episode": (
        at("data.h5", lambda p: h5py.File(p, "w").create_dataset("episode_0", 7)),
        "in a group; got a dataset",
    ),
    "Minari bounds": (
        minari(episode(), episode(actions=np.full((3, 1), 0.5))),
        "got 3 of 6 rows outside, the worst with 0.5 in row 0, dimension 0 of episode_1",
    ),
    "Minari NaN": (
        minari(episode(), episode(rewards=[0, np.nan, 0])),
        "episode_1: rewards must be",
    ),
    # CSV
    "empty CSV": (text(lambda s: ""), "got none named observation_0 (and 5 more), but nothing"),
    "CSV header": (text(lambda s: s.splitlines()[0]), "got 0 steps"),
    "CSV column": (
        text(lambda s: s.replace("reward", "return")),
        "none named reward, but observation_0, ",
    ),
    "CSV names": (text(lambda s: ",".join(f"obs_{n}" for n in range(11))), "obs_9, ..."),
    "CSV separator": (
        text(lambda s: s.replace(",", ";")),
        "action_0;reward;termin: separate values with commas",
    ),
    "CSV twice": (
        text(lambda s: s.replace("reward", "action_0")),
        "once; got 'action_0'",
    ),
    "CSV surplus": (
        text(lambda s: s.replace("observation_1", "observation_1,observation_2")),
        "got observation_2, too",
    ),
    "CSV text": (
        text(lambda s: s.replace("2.0", "two")),
        "row 1: reward must be a number; got 'two' (rows count from 0)",
    ),
    "CSV ragged": (
        text(lambda s: s.replace("2.0", "2.0,1")),
        "row 1: must have 6 values, as the header; got 7: separate values with commas, and",
    ),
    "CSV ragged and quoted": (
        text(lambda s: s.replace("2.0", '"2.0",1')),
        "row 1: must have 6 values, as the header; got 7: separate values with commas, and",
    ),
    "CSV row names": (
        text(lambda s: re.sub(r"\n(?=.)", "\n0,", s)),
        "row 0: must have 6 values, as the header; got 7",
    ),
    "CSV short": (
        text(lambda s: s.replace(",2.0", "")),
        "row 1: must have 6 values, as the header; got 5 (rows",
    ),
    "CSV NaN": (text(lambda s: s.replace(",2.0", ",nan")), "reward must be finite in float32"),
    "CSV flag": (
        text(lambda s: s.replace("True", "yes")),
        "must be True, False, 1 or 0; got 'yes'",
    ),
    "CSV number": (
        text(lambda s: s.replace("True", "7")),
        "be True, False, 1 or 0",
    ),
    "CSV bytes": (text(lambda s: b"\xff\xfe" + s.encode()), "reading failed"),
    "CSV zero": (text(lambda s: s.replace("2.0", "\0")), "row 1: reward"),
    "CSV quote": (text(lambda s: s.replace("2.0", '"2\n0"')), "row 1: reward"),
    "CSV line": (text(lambda s: s + "1" * 2**20), "lines shorter than 1,048,576"),
    "CSV pickle": (text(lambda s: pickle.dumps(s)), "data.csv"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_bad_file_is_rejected_in_one_sentence(tmp_path: Path, name: str) -> None:
    build, expected = CASES[name]
    path = build(tmp_path)
    path = path.parent if path.name == "main_data.hdf5" else path
    check(path, expected)


def check(
    path: Path, expected: str, observations: Space = OBSERVATIONS, actions: Space = ACTIONS
) -> None:
    with pytest.raises(UsageError) as caught:
        for _ in open_dataset(path, observations, actions).chunks():
            pass
    message = str(caught.value)
    assert expected in message
    assert message.startswith(str(path))
    assert " must " in message
    assert "got" in message or "failed" in message or ", not a link" in message
    assert "\n" not in message


def test_values_outside_discrete_spaces_are_rejected(tmp_path: Path) -> None:
    path = write(tmp_path, "npz", arrays() | {"observations": np.arange(7)})
    check(
        path,
        "got 2 of 7 rows outside, the worst with 6 in row 6, outside [0, 4] (rows",
        Discrete(5),
    )
    path = write(tmp_path, "npz", arrays() | {"actions": np.full(7, 0.5)})
    check(path, "actions must be int64; got 0.5", actions=Discrete(2))


def test_nested_fields_must_be_complete(tmp_path: Path) -> None:
    space = Dict({"a": Box(-1, 1, (2,)), "b": Box(-1, 1, (2,))})
    fields = arrays()
    fields["observations/a"] = fields.pop("observations")
    check(write(tmp_path, "npz", fields), "observations/b", space)
    check(write(tmp_path, "npy", fields), "observations/b", space)
    check(write(tmp_path, "hdf5", fields), "observations/b must be in the file; got no 'b'", space)
    check(write(tmp_path, "csv", fields), "none named observation/b_0", space)


def test_spaces_without_numbers_are_rejected(tmp_path: Path) -> None:
    check(write(tmp_path, "npz", arrays()), "must be a Box or a discrete space", Text(5))


def test_invalid_values_are_counted_but_never_yielded(tmp_path: Path) -> None:
    path = write(tmp_path, "npz", arrays(9, (), ()) | {"actions": np.full((9, 1), 0.4)})
    with np.load(path) as found:
        fields = dict(found)
    fields["actions"][4] = 7
    chunks = open_dataset(write(tmp_path, "npz", fields), OBSERVATIONS, ACTIONS).chunks(3)
    found = []
    with pytest.raises(UsageError, match="got 1 of 9 rows"):
        found += (chunk.actions.max() for chunk in chunks)
