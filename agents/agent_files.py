"""Saves agents in directories that always contain a complete agent, and reads them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from eagerly.agents.persistence import VariableCheckpoint
from eagerly.state import checksum, packed, sealed, unpacked

_DOCUMENT, _FORMAT = "agent.json", 1
_FOLDER = re.compile(r"saved-[0-9a-f]{8}")
_KINDS = {
    "format": int,
    "agent": str,
    "settings": dict,
    "spaces": dict,
    "seed": int,
    "folder": str,
    "parts": dict,
    "sha256": str,
}


def save_agent(
    path: Path, document: Mapping[str, Any], state: Any, checkpoint: VariableCheckpoint
) -> None:
    """Writes an agent to a directory, in place of an agent saved there before.

    `agent.json` names a folder with all other files and their checksums. Renaming it into place
    publishes the agent, so a kill at any time leaves either the old or the new agent. Only one
    process may save to a directory at a time.

    Args:
        path: The directory.
        document: A description of the agent that JSON can represent.
        state: The agent's state.
        checkpoint: The agent's variables.

    Raises:
        FileExistsError: If the path exists and does not contain an agent.
        FloatingPointError: If a variable is not finite.
        OSError: If a file cannot be written.
    """
    if path.exists() and not (path / _DOCUMENT).is_file() and not _is_unfinished(path):
        raise FileExistsError(f"{path} exists and contains no agent: choose another directory")
    _remove_others(path)  # left by kills
    folder = path / f"saved-{secrets.token_hex(4)}"
    folder.mkdir(parents=True)
    try:
        checkpoint.write(str(folder / "networks"))
        np.savez(folder / "state.npz", **packed(state))  # type: ignore[arg-type]
        parts = {part.name: _synced(part) for part in sorted(folder.iterdir())}
        content = {"format": _FORMAT, **document, "folder": folder.name, "parts": parts}
        content = json.loads(json.dumps(content, allow_nan=False))
        (folder / _DOCUMENT).write_bytes(sealed(content))
        _synced(folder / _DOCUMENT)
        _sync_folder(folder)
        (folder / _DOCUMENT).replace(path / _DOCUMENT)
        _sync_folder(path)
    finally:
        _remove_others(path)


def _is_unfinished(path: Path) -> bool:
    """Returns whether a directory is empty except for folders of saves that were killed."""
    return path.is_dir() and all(_FOLDER.fullmatch(name) for name in os.listdir(path))


def _remove_others(path: Path) -> None:
    """Removes everything that `agent.json` does not name, if this module could have written it."""
    with suppress(OSError, ValueError):
        found = (path / _DOCUMENT).exists()
        kept = _document(path).get("folder") if found else ""
        for other in path.iterdir():
            if _FOLDER.fullmatch(other.name) and other.name != kept:
                shutil.rmtree(other)
        if not found:
            path.rmdir()


def _document(path: Path) -> dict[str, Any]:
    """Reads `agent.json`. Raises a `ValueError` unless it contains a JSON object."""
    try:
        document = json.loads((path / _DOCUMENT).read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError(f"{path / _DOCUMENT} is nested too deeply") from error
    if not isinstance(document, dict):
        raise ValueError(f"{path / _DOCUMENT} does not describe an agent")
    return document


def saved_agent(path: Path, agent: str) -> tuple[dict[str, Any], Any, str]:
    """Reads an agent written by `save_agent`.

    Args:
        path: The directory.
        agent: The expected name of the agent.

    Returns:
        The description, the state, and the path prefix of the variable files.

    Raises:
        OSError: If a file cannot be read.
        ValueError: If the files do not contain this agent, or a checksum differs.
    """
    if (path / "config.json").is_file():
        raise ValueError(
            f"{path} is a run directory, not an agent saved with save: use eagerly.load_policy to "
            "load its policy, or eagerly.resume to continue it"
        )
    if not (path / _DOCUMENT).is_file():
        raise FileNotFoundError(f"{path} contains no agent saved with save: {_DOCUMENT} is missing")
    document = _document(path)
    if document.keys() != _KINDS.keys():
        raise ValueError(f"{path / _DOCUMENT} does not describe an agent")
    for name, kind in _KINDS.items():
        if not isinstance(document[name], kind):
            raise ValueError(f"{name} in {path / _DOCUMENT} must be of type {kind.__name__}")
    if document["format"] != _FORMAT:
        raise ValueError(f"{path} has format {document['format']}; this version reads {_FORMAT}")
    if document["agent"] != agent:
        raise ValueError(f"{path} must contain an agent {agent}; got {document['agent']}")
    folder = _checked_folder(path, document)
    try:
        with np.load(folder / "state.npz", allow_pickle=False) as parts:
            return document, unpacked(parts), str(folder / "networks")
    except (KeyError, TypeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{folder / 'state.npz'} is not the state of an agent: {error}") from error


def _checked_folder(path: Path, document: Mapping[str, Any]) -> Path:
    """Returns the folder that a document names, if all checksums match."""
    content = {name: value for name, value in document.items() if name != "sha256"}
    if checksum(content) != document["sha256"]:
        raise ValueError(f"{path / _DOCUMENT} does not match its checksum")
    folder = path / document["folder"]
    if not _FOLDER.fullmatch(folder.name) or folder.parent != path:
        raise ValueError(f"{path / _DOCUMENT} names an invalid folder: {document['folder']!r}")
    for name in sorted({*document["parts"], *os.listdir(folder)}):
        if name not in document["parts"] or _digest(folder / name) != document["parts"][name]:
            raise ValueError(f"{folder / name} does not match its checksum")
    return folder


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _synced(path: Path) -> str:
    """Syncs a file to disk and returns its SHA-256."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return _digest(path)


def _sync_folder(path: Path) -> None:
    at = os.open(path, os.O_RDONLY)
    try:
        os.fsync(at)
    finally:
        os.close(at)
