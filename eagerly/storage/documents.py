"""JSON documents with their own checksum in them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

from eagerly.errors import RunError
from eagerly.storage.files import RunFiles

_LARGEST_DOCUMENT = 2**26  # bytes
_DEEPEST = 100


def sealed(document: dict[str, Any]) -> bytes:
    """Writes a document as JSON with its own checksum in it."""
    return json.dumps(document | {"sha256": checksum(document)}, indent=1).encode() + b"\n"


def read_document(files: RunFiles, name: str) -> dict[str, Any]:
    """Reads a JSON object, with or without its checksum.

    Raises:
        ValueError: If it is not one, is too large, or not a file.
        OSError: If the file cannot be read.
    """
    with files.open(name) as file:
        return _parsed(file.read(_LARGEST_DOCUMENT + 1))


def write_document(
    files: RunFiles, name: str, document: dict[str, Any], check: Callable[[dict[str, Any]], object]
) -> None:
    """Writes a document with its checksum, if it can be read back; otherwise the old file stays.

    Args:
        files: The files of the run directory.
        name: The file.
        document: Its content.
        check: Raises a ValueError for a content that the reader of this document refuses.

    Raises:
        RunError: If it could not be read back.
        OSError: If the file cannot be written.
    """
    try:
        content = sealed(document)
        check(unsealed(_parsed(content)))
    except (ValueError, RecursionError) as error:
        path = files.path / name
        raise RunError(f"{path} is not written, because it could not be read: {error}") from error
    files.write(name, [content])


def _parsed(content: bytes) -> dict[str, Any]:
    if len(content) > _LARGEST_DOCUMENT:
        raise ValueError(f"it has more than {_LARGEST_DOCUMENT} bytes")
    try:
        document = json.loads(content)
        # Half of a surrogate pair can neither be printed nor name a file.
        json.dumps(document, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(document, dict):
        raise ValueError("it is not a JSON object")
    _check_depth(document)
    return document


def _check_depth(document: dict[str, Any] | list[Any], left: int = _DEEPEST) -> None:
    """Refuses lists and objects that stand in one another too deeply."""
    if not left:
        raise ValueError("it is nested too deeply")
    for part in document.values() if isinstance(document, dict) else document:
        if isinstance(part, dict | list):
            _check_depth(part, left - 1)


def unsealed(document: dict[str, Any]) -> dict[str, Any]:
    """Checks a document that `sealed` wrote, and takes the seal off.

    Raises:
        ValueError: If it is not as it was written.
    """
    content = {name: value for name, value in document.items() if name != "sha256"}
    if document.get("sha256") != checksum(content):
        raise ValueError("it is not as it was written (its checksum differs)")
    return content


def checksum(document: dict[str, Any]) -> str:
    """Returns the SHA-256 of a document, however its JSON is laid out."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def check_format(version: Any, known: int, what: str) -> None:
    """Refuses a document in another format than this version writes.

    Raises:
        ValueError: If `version` is no number of a format.
        RunError: If it is another one's.
    """
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ValueError(f"its format is {version!r}")
    if version > known:
        raise RunError(
            f"{what} was written by a newer eagerly (format {version}; this one reads {known}): "
            "upgrade to continue it, or begin another --run-dir"
        )
    if version < known:
        raise RunError(
            f"{what} was written before eagerly's first release (format {version}; this one reads "
            f"{known}): begin another --run-dir"
        )
