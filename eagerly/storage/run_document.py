"""The document of a run, `config.json`: its agent, its settings and their overrides."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from eagerly.errors import RunError, UsageError
from eagerly.storage.documents import check_format, read_document, unsealed
from eagerly.storage.evaluations import Results, read_results
from eagerly.storage.files import RunFiles, run_directories
from eagerly.storage.manifest import folders_of, published
from eagerly.storage.run_settings import check_saved

# Kinds of the values that describe a file of logged data.
_DATA = {"path": str, "sha256": str, "transitions": int, "episodes": int}
_MOST_TRANSITIONS = 10**10
_log = logging.getLogger(__name__)
FORMAT = 1


def check_path(path: Path) -> None:
    """Checks that the operating system and TensorFlow accept a path.

    Raises:
        RunError: If it is not UTF-8, or too long.
    """
    try:
        str(path).encode()
        path.exists()
    except (OSError, ValueError) as error:
        raise UsageError(f"{str(path)[:200]!r} cannot be a run directory: {error}") from error


def is_run(path: Path) -> bool:
    """Returns whether a directory contains a run, even if its `config.json` was lost."""
    files = RunFiles(path)
    if files.is_file("config.json"):
        return True
    try:
        return bool(folders_of(files))
    except OSError:
        return False


def not_a_run(path: Path) -> UsageError:
    """Returns the error about a path that is not a run directory."""
    if path.exists():
        return UsageError(f"{path} is not a run directory: it has no config.json")
    return UsageError(f"{path} does not exist: pass the path of a run directory")


def runs_at(path: Path) -> list[Path]:
    """Returns the run directories at or below a path.

    Raises:
        RunError: If there are none.
    """
    check_path(path)
    if found := run_directories(path) or [path] * is_run(path):
        return found
    raise not_a_run(path)


def read_document_of(path: Path) -> dict[str, Any]:
    """Reads the content of `config.json`, without opening the run.

    Raises:
        RunError: If the directory is damaged, or not a run.
    """
    check_path(path)
    if not is_run(path):
        raise not_a_run(path)
    return read_run_document(path, logging.DEBUG)


def read_settings(path: Path) -> dict[str, Any]:
    """Reads the agent and the settings of a run without opening it.

    Raises:
        RunError: If the directory is damaged, or not a run.
    """
    document = read_document_of(path)
    return {"agent": document["agent"], **document["settings"]}


def last_override(history: Iterable[Mapping[str, Any]]) -> int:
    """Returns the step at which settings were last overridden, or -1.

    Earlier evaluations count neither for the best policy nor for the score, because scores may not
    be comparable across an override.

    Args:
        history: The overrides, as stored in `config.json`.
    """
    return max((int(entry["steps"]) for entry in history), default=-1)


def results_of(path: Path, history: Iterable[Mapping[str, Any]]) -> Results:
    """Reads the evaluations of a run.

    Args:
        path: The run directory.
        history: The overrides, as stored in `config.json`.

    Raises:
        RunError: If the table is damaged.
    """
    return read_results(path / "evaluations.csv", after=last_override(history))


def read_run_document(path: Path, level: int) -> dict[str, Any]:
    """Reads `config.json` or, if damaged, the copy in the newest manifest; logs the damage."""
    name = path / "config.json"
    try:
        document = _checked(unsealed(read_document(RunFiles(path), "config.json")))
    except (OSError, ValueError) as error:
        why = f"{name} cannot be read: {error}"
        document = _of_a_manifest(path, why, level)
    try:
        check_saved(document)
    except ValueError as error:
        raise RunError(f"{name}: {error}") from error
    return document


def _of_a_manifest(path: Path, why: str, level: int) -> dict[str, Any]:
    for manifest in reversed(published(path)):
        try:
            document = _checked(manifest.config)  # verified by the manifest's checksum
        except ValueError:
            continue
        taken = f"using the settings saved in the checkpoint at step {manifest.steps}"
        _log.log(level, "%s; %s (change settings with --override)", why, taken)
        return document
    raise RunError(f"{why} (do not edit the file: change settings with --override)")


def _checked(document: dict[str, Any]) -> dict[str, Any]:
    """Validates the structure of the content of `config.json`.

    Raises:
        ValueError: If the content is not that of a run.
        RunError: If another release of eagerly wrote it.
    """
    kinds = {"format": int, "agent": str, "settings": dict, "history": list}
    if unknown := document.keys() - kinds.keys() - {"data"}:
        raise ValueError(f"it has unknown keys: {sorted(unknown)}")
    for key, kind in kinds.items():
        if not isinstance(document.get(key), kind):
            raise ValueError(f"{key} must be of type {kind.__name__}")
    check_format(document["format"], FORMAT, "this run")
    for entry in document["history"]:
        if not _is_override(entry):
            raise ValueError(f"history has an invalid entry: {entry!r}")
    for entry in (data := document.get("data", [])):
        if not (
            isinstance(entry, dict)
            and {name: type(value) for name, value in entry.items()} == _DATA
            and 0 < entry["episodes"] <= entry["transitions"] < _MOST_TRANSITIONS
        ):
            raise ValueError(f"data has an invalid entry: {entry!r}")
    if bool(data) != bool(document["settings"].get("data")):
        raise ValueError("data must describe the files of the setting data")
    return document


def _is_override(entry: Any) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("steps"), int):
        return False
    changes = entry.get("overridden")
    return isinstance(changes, dict) and all(
        isinstance(change, list) and len(change) == 2 for change in changes.values()
    )


def check_document(document: dict[str, Any]) -> None:
    """Raises a `ValueError` or `RunError` if the content of `config.json` is invalid."""
    check_saved(_checked(document))
