"""Files that are there whole or not at all, whatever happens while they are written."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

# More than any run writes: what claims to be larger is not one of its documents.
_LARGEST_DOCUMENT = 2**26
_FULL = (errno.ENOSPC, errno.EDQUOT)


def write_file(path: Path, chunks: Iterable[Any]) -> dict[str, Any]:
    """Writes a file so that a reader sees the old one or the new one; durable when it returns.

    Args:
        path: The file, replaced if it is there.
        chunks: Its content, objects that hold bytes.

    Returns:
        Its size and checksum, as `described` gives them.
    """
    temporary = path.with_name(path.name + ".tmp")
    digest, size = hashlib.sha256(), 0
    temporary.unlink(missing_ok=True)
    try:
        with temporary.open("xb") as file:  # a new file, not what a link points to
            for chunk in chunks:
                file.write(chunk)
                digest.update(chunk)
                size += memoryview(chunk).nbytes
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)
    return {"bytes": size, "sha256": digest.hexdigest()}


def described(path: Path) -> dict[str, Any]:
    """Returns the size and the SHA-256 of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {"bytes": file.tell(), "sha256": digest}


def sync(path: Path) -> None:
    """Makes the content of a file durable."""
    _sync(path, os.O_NOFOLLOW)


def sync_directory(path: Path) -> None:
    """Makes the names in a directory durable."""
    _sync(path, os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, os.O_RDONLY | flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cut(path: Path, length: int) -> None:
    """Shortens a file; one that is reached through a link is refused."""
    descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW)
    try:
        os.ftruncate(descriptor, length)
    finally:
        os.close(descriptor)


def is_regular(path: Path) -> bool:
    """Whether a file stands there, and not a link to one, a pipe or a directory."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def is_full(error: OSError) -> bool:
    """Whether an error says that there is no space left, which may pass."""
    return error.errno in _FULL


def sealed(document: dict[str, Any]) -> bytes:
    """Writes a document as JSON with its own checksum in it."""
    return json.dumps(document | {"sha256": checksum(document)}, indent=1).encode() + b"\n"


def read_document(path: Path) -> dict[str, Any]:
    """Reads a JSON object, with or without its checksum.

    Raises:
        ValueError: If it is not one.
        OSError: If the file cannot be read.
    """
    if not stat.S_ISREG(path.stat().st_mode):  # a pipe would keep its reader waiting
        raise ValueError("it is not a file")
    with path.open("rb") as file:
        content = file.read(_LARGEST_DOCUMENT)
    try:
        document = json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(document, dict):
        raise ValueError("it is not a JSON object")
    return document


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
