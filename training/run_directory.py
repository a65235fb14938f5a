"""Run directories: which settings a run has, and what continuing it may change."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eagerly.agents import agent_class
from eagerly.training.config import RunConfig
from eagerly.training.errors import RunError
from eagerly.training.making import environment_name

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
        made_up: Whether the path was made up, so that it must be nobody else's.
        overridden: The settings that are being overridden: name to saved and new value.
        history: What was overridden before, and when: kept in `config.json`.
    """

    path: Path
    agent: str
    config: RunConfig
    agent_config: Any
    is_new: bool
    made_up: bool = False
    overridden: dict[str, list[Any]] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)

    @property
    def evaluations_path(self) -> Path:
        """The CSV file with one row per evaluation."""
        return self.path / "evaluations.csv"

    def overridden_at(self) -> list[int]:
        """The steps at which settings were overridden before."""
        return [int(entry["steps"]) for entry in self.history]

    def settings(self) -> dict[str, Any]:
        """All settings, of run and agent, by name."""
        return recorded(self.config) | recorded(self.agent_config)

    def write(self, steps: int = 0) -> None:
        """Writes `config.json`, making the directory if it is new.

        Args:
            steps: Environment steps done, to be recorded beside what is overridden.
        """
        self._make_directory()
        if self.overridden:
            now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            entry = {"time": now, "steps": steps, "overridden": self.overridden}
            self.history = [*self.history, entry]
        document = {
            "format": FORMAT,
            "agent": self.agent,
            "run": recorded(self.config),
            "agent_settings": recorded(self.agent_config),
            "history": self.history,
        }
        replace_file(self.path / "config.json", json.dumps(document, indent=2).encode() + b"\n")

    def _make_directory(self) -> None:
        path, count = self.path, 1
        while True:
            try:
                path.mkdir(parents=True, exist_ok=not self.made_up)
            except FileExistsError:
                if not self.made_up:
                    raise
                count += 1
                path = self.path.with_name(f"{self.path.name}-{count}")
            else:
                self.path, self.made_up = path, False
                return


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
        given: The settings that the user gave, by name; `preset` stands for those of one of the
            agent's presets, over which the others go. In a saved run the others keep their
            saved values; what was given must agree with it, unless it cannot change the result.
        override: Whether settings that differ are accepted, and recorded.

    Raises:
        RunError: If the directory is not a run, or a run that differs; a setting is out of range.
    """
    if path is not None and (path / "config.json").is_file():
        return _continued(path, agent, given, override)
    if agent is None:
        raise RunError(f"{path} is not a run: it has no config.json")
    settings = _expanded(agent, given)
    if path is not None and path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise RunError(f"{path} exists and is not a run (no config.json): choose another --run-dir")
    if not settings.get("env"):
        raise RunError("a new run needs an environment: give --env, for example HalfCheetah-v5")
    config, agent_config = _build(agent, settings)
    _check_needs(config, agent_config, given)
    if path is not None:
        return Run(path, agent, config, agent_config, is_new=True)
    made_up = _made_up_path(agent, config)
    return Run(made_up, agent, config, agent_config, is_new=True, made_up=True)


def _continued(path: Path, agent: str | None, given: Mapping[str, Any], override: bool) -> Run:
    document = _read(path)
    saved_agent = document["agent"]
    if agent not in (None, saved_agent):
        raise RunError(
            f"{path} is a run of {saved_agent}, not of {agent}: choose another --run-dir"
        )
    config, agent_config = _build(saved_agent, document["run"] | document["agent_settings"])
    saved = recorded(config) | recorded(agent_config)
    config, agent_config = _build(saved_agent, saved | _expanded(saved_agent, given))
    _check_needs(config, agent_config, given)
    wanted = recorded(config) | recorded(agent_config)
    free = {f.name for f in dataclasses.fields(config) if f.metadata["free"]}
    changed = {n: [saved[n], wanted[n]] for n in wanted if wanted[n] != saved[n] and n not in free}
    if changed and not override:
        lines = "".join(
            f"  {flag_name(name)}: the run has {shown(old)}, you gave {shown(new)}\n"
            for name, (old, new) in changed.items()
        )
        raise RunError(
            f"{path} was started with other settings:\n{lines}Leave them out to continue as saved, "
            "choose another --run-dir, or accept the change with --override."
        )
    return Run(
        path,
        saved_agent,
        config,
        agent_config,
        is_new=False,
        overridden=changed,
        history=document["history"],
    )


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
        for entry in document["history"]:
            int(entry["steps"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path / 'config.json'} cannot be read: {error}") from error
    return dict(document)


def recorded(config: Any) -> dict[str, Any]:
    """Returns settings as they are kept and compared: an environment factory by its name."""
    settings = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    if "env" in settings:
        settings["env"] = environment_name(settings["env"])
    return settings


def _expanded(agent: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Puts the settings of the preset that is named under those that were given."""
    settings = dict(given)
    name = settings.pop("preset", None)
    if name is None:
        return settings
    try:
        presets = agent_class(agent).PRESETS
    except ValueError as error:
        raise RunError(str(error)) from error
    if name not in presets:
        names = f"one of {', '.join(presets)}" if presets else f"left out: {agent} has none"
        raise RunError(f"preset must be {names}; got {name!r}")
    return {**presets[name], **settings}


def _check_needs(config: Any, agent_config: Any, given: Mapping[str, Any]) -> None:
    """Refuses a setting that was given where another one keeps it from acting."""
    for part in (config, agent_config):
        for name in (f.name for f in dataclasses.fields(part) if f.name in given):
            needs = part.__dataclass_fields__[name].metadata["needs"]
            if needs and getattr(part, needs[0]) != needs[1]:
                raise RunError(
                    f"{flag_name(name)} acts only with {flag_name(needs[0])} {needs[1]}; the run "
                    f"has {getattr(part, needs[0])}"
                )


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


def _made_up_path(agent: str, config: RunConfig) -> Path:
    """Makes up a readable directory: `runs/td3-HalfCheetah-v5-0-20261120-184500`."""
    name = environment_name(config.env).removeprefix("factory ").rpartition(":")[2]
    env = re.sub(r"[^\w.-]+", "-", name).strip("-")
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"{agent}-{env}-{config.seed}-{stamp}"


def flag_name(setting: str) -> str:
    """Writes a setting as its command-line flag."""
    return "--" + setting.replace("_", "-")


def shown(value: Any) -> str:
    """Writes a setting's value as it is typed on the command line."""
    if isinstance(value, dict):
        return json.dumps(value)
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


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
