"""Run directories: which settings a run has, and what continuing it may change."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eagerly.agents import agent_class
from eagerly.training.config import RunConfig
from eagerly.training.errors import RunError

FORMAT = 1


@dataclass
class Run:
    """A run as it was opened: its directory and its settings.

    Attributes:
        path: The run directory; it exists once `write` was called.
        agent: Name of the agent.
        config: Settings of the run.
        agent_config: Settings of the agent.
        is_new: Whether nothing of it is on disk yet.
        history: What was overridden, when: kept in `config.json`.
    """

    path: Path
    agent: str
    config: RunConfig
    agent_config: Any
    is_new: bool
    history: list[dict[str, Any]] = field(default_factory=list)

    @property
    def evaluations_path(self) -> Path:
        """The CSV file with one row per evaluation."""
        return self.path / "evaluations.csv"

    def settings(self) -> dict[str, Any]:
        """All settings, of run and agent, by name."""
        return dataclasses.asdict(self.config) | dataclasses.asdict(self.agent_config)

    def write(self) -> None:
        """Writes `config.json`, making the directory if it is new."""
        self.path.mkdir(parents=True, exist_ok=True)
        document = {
            "format": FORMAT,
            "agent": self.agent,
            "run": dataclasses.asdict(self.config),
            "agent_settings": dataclasses.asdict(self.agent_config),
            "history": self.history,
        }
        replace_file(self.path / "config.json", json.dumps(document, indent=2).encode() + b"\n")


def open_run(
    path: Path | None,
    agent: str | None,
    given: Mapping[str, Any],
    *,
    override: bool = False,
) -> Run:
    """Opens the run in a directory, or plans a new one. Nothing is written.

    Args:
        path: The run directory; None makes up a fresh one under `runs/`.
        agent: Name of the agent; None only continues.
        given: The settings that the user gave, by name. In a saved run the others keep their
            saved values; what was given must agree with it, unless it cannot change the result.
        override: Whether settings that differ are accepted, and recorded.

    Raises:
        RunError: If the directory is not a run, or a run that differs; a setting is out of range.
    """
    if path is not None and (path / "config.json").is_file():
        return _continued(path, agent, given, override)
    if agent is None:
        raise RunError(f"{path} is not a run: it has no config.json")
    if path is not None and path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise RunError(f"{path} exists and is not a run (no config.json): choose another --run-dir")
    if not given.get("env"):
        raise RunError("a new run needs an environment: give --env, for example HalfCheetah-v5")
    config, agent_config = _build(agent, given)
    return Run(path or _fresh_path(agent, config), agent, config, agent_config, is_new=True)


def _continued(path: Path, agent: str | None, given: Mapping[str, Any], override: bool) -> Run:
    document = _read(path)
    saved_agent = document["agent"]
    if agent not in (None, saved_agent):
        raise RunError(
            f"{path} is a run of {saved_agent}, not of {agent}: choose another --run-dir"
        )
    saved = document["run"] | document["agent_settings"]
    config, agent_config = _build(saved_agent, saved)
    saved = dataclasses.asdict(config) | dataclasses.asdict(agent_config)
    free = {f.name for f in dataclasses.fields(config) if f.metadata["free"]}
    changed = {name: value for name, value in given.items() if saved.get(name) != value}
    differences = [
        f"--{name.replace('_', '-')}: the run has {saved.get(name)}, you gave {value}"
        for name, value in changed.items()
        if name not in free
    ]
    if differences and not override:
        raise RunError(
            f"{path} was started with other settings:\n  " + "\n  ".join(differences) + "\n"
            "Leave them out to continue as saved, choose another --run-dir, or accept the change "
            "with --override."
        )
    config, agent_config = _build(saved_agent, saved | changed)
    run = Run(path, saved_agent, config, agent_config, False, document["history"])
    if differences:
        overridden = {n: [saved[n], v] for n, v in changed.items() if n not in free}
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        run.history.append({"time": now, "overridden": overridden})
    return run


def _read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads((path / "config.json").read_text(encoding="utf-8"))
        if document["format"] > FORMAT:
            raise RunError(
                f"{path} was written by a newer eagerly (format {document['format']}; this one "
                f"reads up to {FORMAT}): upgrade to continue it"
            )
        for key, kind in (
            ("agent", str),
            ("run", dict),
            ("agent_settings", dict),
            ("history", list),
        ):
            if not isinstance(document[key], kind):
                raise TypeError(f"{key} is not a {kind.__name__}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path / 'config.json'} cannot be read: {error}") from error
    return dict(document)


def _build(agent: str, settings: Mapping[str, Any]) -> tuple[RunConfig, Any]:
    try:
        agent_settings = agent_class(agent).Config
        parts: list[Any] = []
        kind: Any
        for kind in (RunConfig, agent_settings):
            names = {f.name for f in dataclasses.fields(kind)}
            values = {
                name: tuple(value) if isinstance(value, list) else value
                for name, value in settings.items()
                if name in names
            }
            parts.append(kind(**values))
        known = {f.name for part in parts for f in dataclasses.fields(part)}
        unknown = sorted(set(settings) - known)
        if unknown:
            raise ValueError(f"unknown settings: {', '.join(unknown)}")
    except (TypeError, ValueError) as error:
        raise RunError(str(error)) from error
    return parts[0], parts[1]


def _fresh_path(agent: str, config: RunConfig) -> Path:
    """Makes up a readable directory that does not exist: `runs/td3-HalfCheetah-v5-0-...`."""
    env = config.env.replace("/", "-").replace(":", "-")
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    base = Path("runs") / f"{agent}-{env}-{config.seed}-{stamp}"
    path, count = base, 1
    while path.exists():
        count += 1
        path = base.with_name(f"{base.name}-{count}")
    return path


def replace_file(path: Path, content: bytes) -> None:
    """Writes a file so that a reader sees the old one or the new one, whatever happens."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Makes the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
