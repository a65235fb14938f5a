"""JSON documents with their own checksum in them, and what an error of a file says."""

from __future__ import annotations

import errno
import hashlib
import json
from typing import Any

from eagerly.errors import RunError
from eagerly.storage.files import RunFiles

# More than any run writes: what claims to be larger is not one of its documents.
_LARGEST_DOCUMENT = 2**26
_DEEPEST = 100
_FULL = (errno.ENOSPC, errno.EDQUOT)


def is_full(error: OSError) -> bool:
    """Whether an error says that there is no space left, which may pass."""
    return error.errno in _FULL


def sealed(document: dict[str, Any]) -> bytes:
    """Writes a document as JSON with its own checksum in it."""
    return json.dumps(document | {"sha256": checksum(document)}, indent=1).encode() + b"\n"


def read_document(files: RunFiles, name: str) -> dict[str, Any]:
    """Reads a JSON object, with or without its checksum.

    Raises:
        ValueError: If it is not one, or not a file.
        OSError: If the file cannot be read.
    """
    with files.open(name) as file:
        content = file.read(_LARGEST_DOCUMENT)
    try:
        document = json.loads(content)
        # Half of a surrogate pair can neither be printed nor name a file.
        json.dumps(document, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if _depth(document) > _DEEPEST:
        raise ValueError("it is nested too deeply")
    if not isinstance(document, dict):
        raise ValueError("it is not a JSON object")
    return document


def _depth(document: Any) -> int:
    """Counts how deeply lists and objects stand in one another."""
    depth, layer = 0, [document]
    while depth <= _DEEPEST:
        parts = [e.values() if isinstance(e, dict) else e for e in layer if _holds(e)]
        if not parts:
            break
        layer = [e for part in parts for e in part]
        depth += 1
    return depth


def _holds(value: Any) -> bool:
    return isinstance(value, dict | list)


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
