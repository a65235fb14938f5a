"""The formats of logged data: how they are recognized, and which fields they contain."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from io import UnsupportedOperation
from pathlib import Path
from typing import Any

from eagerly.datasets.arrays import folder_names, folder_table, npz_names, npz_table
from eagerly.datasets.csv_table import csv_columns, csv_table
from eagerly.datasets.fields import CSV, D4RL, MINARI, Fields, Names
from eagerly.datasets.hdf5 import has_episodes, hdf5_file
from eagerly.datasets.steps import Steps
from eagerly.errors import RunError, UsageError, summary
from eagerly.sanitizing import sanitize

_FORMATS = (
    "a .npz, .hdf5, .h5 or .csv file, a folder of .npy files, or a Minari folder with "
    "main_data.hdf5"
)
_MOST_NAMES = 12  # listed in messages


def kind_of(path: Path) -> tuple[str, Path]:
    """Returns the format of a path, and the file to read.

    An HDF5 file counts as "hdf5" here; its content determines whether it is "minari".

    Raises:
        UsageError: If the path is a link, does not exist, or is in no supported format.
    """
    if path.is_symlink():
        raise UsageError(f"{path} must be a file or folder; got a link: name its target instead")
    if not path.exists():
        raise UsageError(f"{path} must be {_FORMATS}; got no such file")
    if path.is_dir():
        for inner in (path / "main_data.hdf5", path / "data" / "main_data.hdf5"):
            if inner.exists() and not inner.parent.is_symlink():
                return "minari", inner
        return "npy", path
    suffix = path.suffix.lower()
    if suffix in (".hdf5", ".h5"):
        return "hdf5", path
    if suffix in (".npz", ".csv"):
        return suffix[1:], path
    raise UsageError(f"{path} must be {_FORMATS}; got a name that ends in {suffix or 'nothing'}")


def names_of(kind: str) -> Names:
    """Returns the names of the fields in a format."""
    return {"minari": MINARI, "csv": CSV}.get(kind, D4RL)


def found_names(kind: str, file: Path) -> set[str]:
    """Returns the names of the fields in a file; of an HDF5 file, those in its root group."""
    if kind == "npz":
        return npz_names(file)
    if kind == "npy":
        return folder_names(file)
    if kind == "csv":
        return set(csv_columns(file))
    with hdf5_file(file) as opened:
        return opened.names()


def check_names(path: str, kind: str, fields: Fields, found: set[str]) -> None:
    """Validates the names of the fields, as far as `found_names` lists them.

    Raises:
        UsageError: If a field is missing.
    """
    if kind == "csv":  # `CsvTable` validates the names of columns
        return
    if kind == "minari":
        if not has_episodes(found):
            raise UsageError(f"{path} must contain episode_0 and so on; got no episode")
        return
    needed = [field.name for field in fields]
    if kind == "hdf5":
        needed = [name.partition("/")[0] for name in needed]
    missing = [name for name in needed if name not in found]
    if not missing:
        return
    advice = ""
    if fields.names.truncated in missing:
        advice = (
            f": {fields.names.truncated} is True where a time limit or a reset cut an episode, and "
            "False everywhere if nothing did"
        )
    raise UsageError(
        f"{path} must contain {', '.join(dict.fromkeys(needed))}; got "
        f"{', '.join(sorted(found)[:_MOST_NAMES]) or 'nothing'}{advice}"
    )


@contextmanager
def _hdf5_table(path: Path, fields: Fields) -> Iterator[Any]:
    with hdf5_file(path) as file:
        yield file.table(fields)


@contextmanager
def _first_episode(path: Path, fields: Fields) -> Iterator[Any]:
    with hdf5_file(path) as file:
        yield file.first_episode(fields)


# Opening a file validates its layout; that of a Minari file, only in its first episode.
TABLES: dict[str, Callable[[Path, Fields], AbstractContextManager[Any]]] = {
    "npz": npz_table,
    "npy": folder_table,
    "csv": csv_table,
    "hdf5": _hdf5_table,
    "minari": _first_episode,
}


def blocks(table: Any, fields: Fields, count: int) -> Iterator[Steps]:
    """Yields the validated steps of a table, at most `count` at a time."""
    while True:
        values = table.read(count)
        found = {field.name: field.convert(values[field.name]) for field in fields}
        block = Steps(
            [found[field.name] for field in fields.observations],
            [found[field.name] for field in fields.actions],
            found[fields.rewards.name],
            found[fields.terminated.name],
            found[fields.truncated.name],
            [found[field.name] for field in fields.next_observations],
        )
        if not len(block):
            return
        yield block


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Converts the errors of libraries that read damaged files to a `UsageError` in one line."""
    try:
        yield
    except RunError as error:
        # Names in the file may contain control characters.
        raise UsageError(sanitize(str(error), lines=False)) from error
    except UnsupportedOperation as error:  # a link or a pipe
        raise UsageError(f"{path}: {error}") from error
    except Exception as error:  # data files are untrusted input
        what = f"{path} must be a valid data file"
        reason = sanitize(summary(error), lines=False)
        raise UsageError(f"{what}; reading failed: {reason}") from error
