"""Reads columns of logged data from CSV files."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from itertools import islice
from pathlib import Path

import numpy as np

from eagerly.datasets.fields import COUNTING, CSV, Field, Fields
from eagerly.errors import UsageError
from eagerly.storage.files import RunFiles

_MOST_LETTERS = 2**20  # per line
_MOST_NAMES = 10  # of columns, listed in messages
_FLAGS = {"true": 1.0, "false": 0.0}
_POINTS = ": separate values with commas, and decimals with points"


class CsvTable:
    """A CSV file with one line per step, read in blocks.

    Args:
        path: The data file, for messages.
        fields: The fields.
        file: The open file.
    """

    def __init__(self, path: Path, fields: Fields, file: TextIOWrapper) -> None:
        self._path, self._fields = path, list(fields)
        self._lines = _lines(path, file)
        self._header = _header(path, self._lines)
        self._rows = 0
        needed = [name for field in self._fields for name in columns_of(field)]
        missing = [name for name in needed if name not in self._header]
        if missing:
            found = ", ".join(name[:50] for name in self._header[:_MOST_NAMES]) or "nothing"
            if len(self._header) > _MOST_NAMES:
                found += ", ..."
            advice = _POINTS if any(sign in found for sign in ";\t") else ""
            raise UsageError(
                f"{path} must have the columns of the environment's spaces; got none named "
                f"{missing[0]}{_more(missing)}, but {found}{advice}"
            )
        unknown = set(self._header) - set(needed)
        surplus = [n for n in self._header if n in unknown and _is_part(n, self._fields)]
        if surplus:
            raise UsageError(
                f"{path} must have as many columns as the environment's spaces have dimensions; "
                f"got {surplus[0]}, too{_more(surplus)}"
            )
        self._places = [self._header.index(name) for name in needed]

    def read(self, count: int) -> dict[str, np.ndarray]:
        """Returns the next rows of each field, at most `count`."""
        lines = list(islice(self._lines, count))
        numbers = self._parsed(lines) if lines else np.zeros((0, len(self._places)))
        self._rows += len(lines)
        found, first = {}, 0
        for field in self._fields:
            width = math.prod(field.shape)
            columns = numbers[:, first : first + width]
            found[field.name] = columns.reshape(len(numbers), *field.shape)
            first += width
        return found

    def _parsed(self, lines: list[str]) -> np.ndarray:
        flags = [self._header.index(field.name) for field in self._fields if field.dtype == bool]
        try:
            numbers = np.loadtxt(
                lines,
                delimiter=",",
                comments=None,
                quotechar='"',
                ndmin=2,
                usecols=self._places,
                converters=dict.fromkeys(flags, _flag),
            )
            widths = {len(row) for row in csv.reader(lines)}
            if len(numbers) == len(lines) and widths == {len(self._header)}:
                return numbers
        except ValueError:
            pass
        raise UsageError(f"{self._path}, {self._mistake(lines, flags)} {COUNTING}")

    def _mistake(self, lines: list[str], flags: list[int]) -> str:
        """Describes the first line that is not a row of numbers."""
        for index, cells in enumerate(csv.reader(lines)):
            row = f"row {self._rows + index:,}"
            if len(cells) != len(self._header):
                advice = _POINTS if len(cells) > len(self._header) else ""
                return (
                    f"{row}: must have {len(self._header)} values, as the header; got "
                    f"{len(cells)}{advice}"
                )
            for place in self._places:
                name, cell = self._header[place], cells[place]
                try:
                    _flag(cell) if place in flags else float(cell)
                except ValueError:
                    kind = "True, False, 1 or 0" if place in flags else "a number"
                    advice = _POINTS if "," in cell else ""
                    return f"{row}: {name} must be {kind}; got {cell[:50]!r}{advice}"
        return f"row {self._rows:,} or later: must have one row of numbers per line"


def csv_columns(path: Path) -> list[str]:
    """Returns the names of the columns of a CSV file.

    Raises:
        UsageError: If a name occurs twice.
    """
    with _opened(path) as file:
        return _header(path, _lines(path, file))


@contextmanager
def csv_table(path: Path, fields: Fields) -> Iterator[CsvTable]:
    """Opens a CSV file."""
    with _opened(path) as file:
        yield CsvTable(path, fields, file)


def columns_of(field: Field) -> list[str]:
    """Returns the columns of a field: its name or, in a space, one per dimension in C order."""
    if field.name in (CSV.rewards, CSV.terminated, CSV.truncated):
        return [field.name]
    return [f"{field.name}_{index}" for index in range(math.prod(field.shape))]


def _is_part(name: str, fields: list[Field]) -> bool:
    """Returns whether a column looks like another dimension of one of the fields."""
    stem, _, index = name.rpartition("_")
    return index.isdigit() and stem in {field.name for field in fields}


@contextmanager
def _opened(path: Path) -> Iterator[TextIOWrapper]:
    with (
        RunFiles(path.parent).open(path.name) as binary,
        TextIOWrapper(binary, encoding="utf-8-sig") as file,
    ):
        yield file


def _lines(path: Path, file: TextIOWrapper) -> Iterator[str]:
    """Yields the lines of a file, except empty ones."""
    while line := file.readline(_MOST_LETTERS):
        if len(line) == _MOST_LETTERS:
            raise UsageError(
                f"{path} must have lines shorter than {_MOST_LETTERS:,} letters; got a longer one"
            )
        if line.strip():
            yield line


def _header(path: Path, lines: Iterator[str]) -> list[str]:
    names = [name.strip() for name in next(csv.reader([next(lines, "")]), [])]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise UsageError(f"{path} must name each column once; got {twice[0]!r} several times")
    return names


def _flag(text: str) -> float:
    known = _FLAGS.get(text.strip().lower())
    return float(text) if known is None else known


def _more(names: list[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""
