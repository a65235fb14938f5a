"""The setting `track`, and the identity of a run in an experiment tracker."""

from __future__ import annotations

import importlib.util
import re
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote, urlsplit

from eagerly.errors import UsageError
from eagerly.state import checksum
from eagerly.storage.documents import read_document, unsealed, write_document
from eagerly.storage.files import RunFiles

# The modules that each tracker requires.
TRACKERS: Mapping[str, Sequence[str]] = MappingProxyType(
    {"wandb": ("wandb",), "mlflow": ("mlflow", "sqlalchemy", "alembic")}
)
_FORMS = "wandb, wandb:PROJECT, mlflow or mlflow:URI"
_PROJECT = re.compile(r"[\w .-]{1,128}")
_URI = re.compile(r"(?!file:)[a-z][a-z0-9+.-]*:/\S+")
_PASSWORD = re.compile(r"(pass(word|wd)?|pwd|token)\s*=", re.IGNORECASE)  # in a query
_NAME = "tracking.json"
_ID = re.compile(r"[0-9a-f]{16}")


def split_track(track: str) -> tuple[str, str]:
    """Returns the tracker and its project or address; the latter is "" if it is not given."""
    kind, _, target = track.partition(":")
    return kind, target


def check_track(track: str) -> None:
    """Validates the form of the setting.

    Raises:
        ValueError: If it names an unknown tracker, an invalid project, or an address that is
            neither a database nor a server.
    """
    kind, target = split_track(track)
    if not track:
        return
    if kind not in TRACKERS or track.endswith(":"):
        raise ValueError(f"track must be {_FORMS}; got {track!r}")
    if kind == "wandb" and target and not _PROJECT.fullmatch(target):
        raise ValueError(
            "the project in track must have at most 128 letters, digits, blanks, dots, hyphens or "
            f"underscores; got {target!r}: set WANDB_ENTITY to choose a team"
        )
    if kind == "mlflow" and target:
        if not _URI.fullmatch(target):
            raise ValueError(
                "the address in track must be a database or a server, such as "
                f"mlflow:sqlite:///mlflow.db or mlflow:http://localhost:5000; got {target!r}: "
                "write %20 for a blank; MLflow no longer stores runs in plain folders"
            )
        if _has_password(target):
            raise ValueError(
                "the address in track must not contain a password, because it is saved with the "
                "run: use track mlflow and set MLFLOW_TRACKING_URI"
            )


def _has_password(uri: str) -> bool:
    try:
        parts = urlsplit(uri)
        return parts.password is not None or _PASSWORD.search(unquote(parts.query)) is not None
    except ValueError:  # reported by MLflow
        return False


def check_tracker(track: str) -> None:
    """Checks that the modules of the tracker are installed, without importing them.

    Raises:
        UsageError: If one is missing. The message explains how to install it.
    """
    kind, _ = split_track(track)
    for module in TRACKERS.get(kind, ()):
        found = importlib.util.find_spec(module)
        if found is None or found.origin is None:  # None: a folder, such as W&B's own `wandb/`
            raise UsageError(
                f"--track {kind} requires the package {module}: pip install 'eagerly[{kind}]', or "
                "omit tracking with --track none"
            )


def tracker_id(path: Path, track: str, history: Sequence[Mapping[str, Any]]) -> str:
    """Returns the ID of a run in a tracker, 16 hexadecimal digits; creates it on first use.

    It is stored in `tracking.json` and bound to the path of the directory: a copy has a new ID. So
    has a run after an override, because its later points belong to other settings and would
    contradict those that the tracker received before. Each value of `track` has its own ID.

    Args:
        path: The run directory.
        track: The setting.
        history: The overrides, as stored in `config.json`.

    Raises:
        OSError, RunError: If the file cannot be written.
    """
    files = RunFiles(path)
    overrides = checksum(list(history))
    owner = {"path": str(path.resolve()), "overrides": overrides}
    ids: dict[str, Any] = {}
    try:
        saved = unsealed(read_document(files, _NAME))
        if owner.items() <= saved.items() and isinstance(saved.get("ids"), dict):
            ids = saved["ids"]
    except (OSError, ValueError):  # missing or damaged: the run gets a new ID
        pass
    found = ids.get(track)
    if isinstance(found, str) and _ID.fullmatch(found):
        return found
    created = secrets.token_hex(8)
    write_document(files, _NAME, {**owner, "ids": {**ids, track: created}}, lambda document: None)
    return created
