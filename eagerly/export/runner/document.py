"""Reads `policy.json` and verifies the exported files."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from .runtimes import RUNTIMES

FORMAT = 1
_OPTIONAL = ("preprocessing", "normalization", "memory")
_KEYS: dict[str, tuple[str, ...]] = {
    "model": ("format", "files", "inputs", "outputs"),
    "observation": ("space", "ignored", "size", "masked", "entries"),
    "preprocessing": ("shape", "dtype", "steps"),
    "normalization": ("mean", "scale", "clip"),
    "memory": ("states",),
    "action": ("space", "continuous", "choices", "firsts", "low", "high", "dtype"),
    "files": (),
}


def read_document(folder: Path) -> dict[str, Any]:
    """Reads `policy.json`.

    Raises:
        FileNotFoundError: If it does not exist.
        ValueError: If it is damaged, or this runner does not support its format.
    """
    path = folder / "policy.json"
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} not found: pass the folder of an export, which contains policy.json"
        )
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON ({error}): copy it again, or export again") from error
    if not isinstance(document, dict):
        raise ValueError(f"{path} is not a JSON object: copy it again, or export again")
    if document.get("format") != FORMAT:
        raise ValueError(
            f"{path} has format {document.get('format')!r}; this runner reads {FORMAT}: use the "
            "runner in the same folder"
        )
    seal = document.pop("sha256", None)
    if seal != hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest():
        raise ValueError(f"{path} has changed since the export: export again")
    if missing := _missing(document):
        raise ValueError(f"{path} lacks {', '.join(missing)}: export again")
    if document["model"]["format"] not in RUNTIMES:
        raise ValueError(
            f"{path} has a model of format {document['model']['format']!r}; this runner supports "
            f"{', '.join(RUNTIMES)}: use the runner in the same folder"
        )
    return document


def _missing(document: dict[str, Any]) -> list[str]:
    """Returns the names of required keys that `policy.json` lacks."""
    found = []
    for name, keys in _KEYS.items():
        part = document.get(name)
        if isinstance(part, dict):
            found += [f"{name}.{key}" for key in keys if key not in part]
        elif part is not None or name not in _OPTIONAL or name not in document:
            found.append(name)
    return found


def check_files(folder: Path, about: dict[str, Any], names: Any = None) -> None:
    """Checks that no file is missing or was modified since the export.

    Args:
        folder: The folder of the export.
        about: The contents of `policy.json`.
        names: Names of the files to check; None for all.

    Raises:
        ValueError: If a file is missing, modified, or outside the folder. The message names it.
    """
    for name in about["files"] if names is None else names:
        path = folder / name
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise ValueError(f"policy.json lists {name!r}, which is outside its folder")
        if not path.is_file():
            raise ValueError(
                f"{path} is missing but listed in policy.json: copy the whole folder again"
            )
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if digest != about["files"].get(name, {}).get("sha256"):
            raise ValueError(
                f"{path} has changed since the export (its checksum differs from that in "
                "policy.json): export again"
            )
