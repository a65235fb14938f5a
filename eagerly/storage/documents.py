"""JSON documents with an embedded checksum, and TOML files."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eagerly.errors import RunError, UsageError
from eagerly.state import checksum, sealed
from eagerly.storage.files import RunFiles

_LARGEST_DOCUMENT = 2**26  # bytes
_DEEPEST = 100


def read_document(files: RunFiles, name: str) -> dict[str, Any]:
    """Reads a JSON object, with or without a checksum.

    Raises:
        ValueError: If the content is not a JSON object or too large, or if `name` is not a file.
        OSError: If the file cannot be read.
    """
    with files.open(name) as file:
        return _parsed(file.read(_LARGEST_DOCUMENT + 1))


def write_document(
    files: RunFiles, name: str, document: dict[str, Any], check: Callable[[dict[str, Any]], object]
) -> None:
    """Writes a document with its checksum, unless the new content could not be read back.

    Args:
        files: The files of the run directory.
        name: The file name.
        document: The content.
        check: Raises a ValueError if the reader of this document would reject the content.

    Raises:
        RunError: If the document could not be read back.
        OSError: If the file cannot be written.
    """
    try:
        content = sealed(document)
        check(unsealed(_parsed(content)))
    except (ValueError, RecursionError) as error:
        path = files.path / name
        raise RunError(f"{path} was not written: it could not be read back ({error})") from error
    files.write(name, [content])


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """Reads a TOML file that a user wrote.

    Args:
        path: The file.
        what: The file in an error, such as "--space space.toml".

    Raises:
        RunError: If the file cannot be read or is not valid TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{what} cannot be read: {error}") from error


def _parsed(content: bytes) -> dict[str, Any]:
    if len(content) > _LARGEST_DOCUMENT:
        raise ValueError(f"it has more than {_LARGEST_DOCUMENT} bytes")
    try:
        document = json.loads(content)
        # A lone surrogate can neither be printed nor used in a file name.
        json.dumps(document, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(document, dict):
        raise ValueError("it is not a JSON object")
    _check_depth(document)
    return document


def _check_depth(document: dict[str, Any] | list[Any], left: int = _DEEPEST) -> None:
    if not left:
        raise ValueError("it is nested too deeply")
    for part in document.values() if isinstance(document, dict) else document:
        if isinstance(part, dict | list):
            _check_depth(part, left - 1)


def unsealed(document: dict[str, Any]) -> dict[str, Any]:
    """Validates a document written by `sealed` and returns it without its checksum.

    Raises:
        ValueError: If the checksum does not match.
    """
    content = {name: value for name, value in document.items() if name != "sha256"}
    if document.get("sha256") != checksum(content):
        raise ValueError("its checksum does not match")
    return content


def check_format(version: Any, known: int, what: str) -> None:
    """Validates the format version of a document.

    Raises:
        ValueError: If `version` is not a positive integer.
        RunError: If a newer release of eagerly wrote the document.
    """
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ValueError(f"its format must be a positive integer; got {version!r}")
    if version > known:
        raise RunError(
            f"{what} was written by a newer version of eagerly (format {version}; this version "
            f"reads {known}): upgrade eagerly to resume it, or choose another --run-dir"
        )
