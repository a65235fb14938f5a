"""Run directories: the settings of a run, and which of them may change on resuming."""

from __future__ import annotations

import datetime
import logging
import re
from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from eagerly.agents import agent_name
from eagerly.environments.factory import EnvironmentMaker, environment_maker, environment_name
from eagerly.errors import RunError, UsageError
from eagerly.importing import FACTORY, check_outside
from eagerly.settings import Requirement, flag_name, with_tuples
from eagerly.storage.config import RESUMABLE, RunConfig
from eagerly.storage.documents import write_document
from eagerly.storage.evaluations import Results
from eagerly.storage.files import LINK, RUNS, RunFiles
from eagerly.storage.lock import RunLock
from eagerly.storage.presets import OF_THE_ENVIRONMENT, with_preset
from eagerly.storage.run_document import (
    FORMAT,
    check_document,
    check_path,
    is_run,
    last_override,
    not_a_run,
    read_run_document,
    results_of,
)
from eagerly.storage.run_settings import (
    as_saved,
    build,
    check_names,
    declared_settings,
    format_setting,
)
from eagerly.storage.trust import (
    MISSING,
    changed_kwargs,
    described,
    is_trusted,
    modules_of,
    outside_settings,
    places_of,
    trust,
)

_log = logging.getLogger(__name__)
_LEFT_BY_A_RUN_THAT_NEVER_BEGAN = {"lock", "config.json.tmp"}
# Trust in these settings is checked when they take effect; in all others, when the run is opened.
CHECKED_LATER = {"env", "env_kwargs", "wrapper", "evaluation_env_kwargs", "init_from", "data"}
CHECKED_LATER |= {"collectors", "num_collectors", "track"}
# None of these directories may be a link. Parents come first.
_FOLDERS = ["checkpoints", "checkpoints/*", "replay", "videos"]
_FOLDERS += ["plugins", "plugins/profile", "plugins/profile/*"]


@dataclass(repr=False)
class Run:
    """An opened run: its directory and settings.

    Attributes:
        path: The run directory. `write` creates it.
        agent: Name of the agent.
        config: Settings of the run.
        agent_config: Settings of the agent.
        is_new: Whether nothing has been written to disk yet.
        made_up: Whether the path was generated. If it exists already, `write` chooses another one.
        overridden: The saved and the new value of each setting to be overridden, by name.
        history: Earlier overrides and their times, as stored in `config.json`.
        preset: Description of the preset used by a new run.
        data: The logged data: path, SHA-256 digest and number of transitions of each file.
        trusts_init_from: Whether the user trusts the run directory named by `init_from`.
        trusts_all: Whether the user trusts all settings of the directory.
        untrusted: Settings that reach outside the process (`trust.outside_settings`), come only
            from the directory, and are not trusted by the user.
        named: All settings that reach outside the process, if `agent_config` is only a part of the
            settings of the agent; else None.
    """

    path: Path
    agent: str
    config: RunConfig
    agent_config: Any
    is_new: bool
    made_up: bool = False
    overridden: dict[str, list[Any]] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    preset: str = ""
    data: list[dict[str, Any]] = field(default_factory=list)
    trusts_init_from: bool = False
    trusts_all: bool = False
    untrusted: dict[str, Any] = field(default_factory=dict)
    named: Mapping[str, Any] | None = None
    _lock: RunLock | None = None

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @property
    def evaluations_path(self) -> Path:
        """The CSV file with one row per evaluation."""
        return self.path / "evaluations.csv"

    @property
    def agent_module(self) -> str | None:
        """The module of a custom agent; None for a registered one."""
        return self.agent.partition(":")[0] if ":" in self.agent else None

    def overridden_at(self) -> list[int]:
        """Returns the steps at which settings were overridden before."""
        return [int(entry["steps"]) for entry in self.history]

    @property
    def last_override(self) -> int:
        """The step of the last override; see `last_override`."""
        return last_override(self.history)

    def results(self) -> Results:
        """Reads the evaluations of the run.

        Raises:
            RunError: If the table is damaged.
        """
        return results_of(self.path, self.history)

    def settings(self) -> dict[str, Any]:
        """Returns all settings, of run and agent, by name."""
        return as_saved(self.config, self.agent_config)

    def changes(self, document: Mapping[str, Any]) -> dict[str, list[Any]]:
        """Returns the old and new values of settings that were overridden since a checkpoint.

        Args:
            document: The content of `config.json` when the checkpoint was saved, not validated.
        """
        saved = document.get("settings")
        return _changes(with_tuples(saved) if isinstance(saved, dict) else {}, self.settings())

    def environment(self) -> EnvironmentMaker:
        """Returns the factory of the training environments, and imports what they need.

        Raises:
            RunError: If the environment is untrusted or does not exist.
        """
        self.check_trusted("env", "env_kwargs", "wrapper")
        config, run_dir = self.config, None if self.is_new else self.path
        return environment_maker(
            config.env, config.env_kwargs, wrappers=config.wrapper, run_dir=run_dir
        )

    def evaluation_environment(self, kwargs: Mapping[str, Any] | None = None) -> EnvironmentMaker:
        """Returns the factory of environments for evaluations and videos; see `environment`.

        Args:
            kwargs: Arguments given by the user, in place of the setting `evaluation_env_kwargs`.
        """
        if kwargs is None:
            self.check_trusted("evaluation_env_kwargs")
            kwargs = self.config.evaluation_env_kwargs
        make = self.environment()
        return replace(make, kwargs={**make.kwargs, **kwargs}, is_evaluation=True)

    def check_trusted(self, *settings: str) -> None:
        """Checks that these settings may take effect.

        Raises:
            RunError: If one is `untrusted`.
        """
        if asked := self.untrusted.keys() & set(settings):
            raise _trust_error(self.path, self.untrusted, asked)

    def check_kwargs(self, kwargs: Mapping[str, Any]) -> None:
        """Checks that the environments may receive changed arguments from a checkpoint.

        Raises:
            RunError: If the user has not trained this run with such arguments, and does not trust
                the directory.
        """
        if self.trusts_all:
            self.trust_kwargs(kwargs)
        elif not is_trusted(self.path, changed_kwargs(kwargs)):
            raise _trust_error(self.path, {"env_kwargs": dict(kwargs)}, set())

    def trust_kwargs(self, kwargs: Mapping[str, Any]) -> None:
        """Records that the user trusts this run with changed arguments; see `changed_kwargs`."""
        self._record(changed_kwargs(kwargs))

    def trust(self) -> None:
        """Records that the user trusts this run; logs a warning if that is impossible.

        A run with untrusted settings is not recorded. Those settings have had no effect.
        """
        named = outside_settings(self.document()) if self.named is None else self.named
        if named and not self.untrusted:
            self._record(named)

    def _record(self, named: Mapping[str, Any]) -> None:
        try:
            if not is_trusted(self.path, named):
                trust(self.path, named)
        except OSError as error:
            _log.warning(
                f"this run cannot be added to the list of trusted runs ({error}): add --trust to "
                "resume, evaluate or plot it"
            )

    def lock(self) -> None:
        """Locks the existing run directory for this process, until `unlock`.

        Raises:
            RunError: If another process holds the lock, the directory contains links, or it cannot
                be written.
        """
        for pattern in _FOLDERS:
            for path in self.path.glob(pattern):
                if path.is_symlink():
                    # Files outside the run could be overwritten or removed through the link.
                    raise RunError(f"{path} {LINK}")
        if self._lock is None:
            try:
                self._lock = RunLock(self.path)
            except OSError as error:
                raise RunError(f"{self.path} cannot be used: {error}") from error

    def check_lock(self) -> None:
        """Checks that the directory is still the locked one.

        Raises:
            OSError: If it is a different directory or no longer exists.
        """
        if self._lock:
            self._lock.check()

    def unlock(self) -> None:
        """Unlocks the directory, if it is locked."""
        if self._lock:
            self._lock.close()
            self._lock = None

    def document(self) -> dict[str, Any]:
        """Returns the content of `config.json`."""
        return {
            "format": FORMAT,
            "agent": self.agent,
            "settings": self.settings(),
            "history": self.history,
        } | ({"data": self.data} if self.data else {})

    def write(self, steps: int = 0) -> None:
        """Locks the directory, creating it if needed, and writes `config.json`.

        Also records that the user trusts the run; see `trust`.

        Args:
            steps: Environment steps completed, recorded with the overrides.

        Raises:
            RunError: If another process holds the lock, or has created the run in the meantime.
        """
        outer = self.path.absolute().parents
        existing = next(folder for folder in outer if folder.is_dir())
        self._make_directory()
        self.lock()
        if self.is_new and (self.path / "config.json").exists():
            self.unlock()
            raise RunError(f"{self.path} was created by another process in the meantime: try again")
        # If the run fell back to an older checkpoint, earlier overrides apply from that one on.
        self.history = [entry | {"steps": min(entry["steps"], steps)} for entry in self.history]
        if self.overridden:
            now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            entry = {"time": now, "steps": steps, "overridden": self.overridden}
            self.history = [*self.history, entry]
        self.trust()
        write_document(RunFiles(self.path), "config.json", self.document(), check_document)
        if self.is_new:
            for folder in outer[: outer.index(existing) + 1]:
                RunFiles(folder).sync_folder()
        self.is_new, self.overridden = False, {}

    def _make_directory(self) -> None:
        made_up, count = self.path, 1
        while self.made_up:
            try:
                self.path.mkdir(parents=True)
                self.made_up = False
            except FileExistsError:
                count += 1
                self.path = made_up.with_name(f"{made_up.name}-{count}")
        self.path.mkdir(parents=True, exist_ok=True)


def open_run(
    path: str | Path | None,
    agent: str | type | None,
    given: Mapping[str, Any],
    *,
    override: bool = False,
    trust: bool = False,
) -> Run:
    """Opens the run in a directory, or prepares a new one. Nothing is written.

    Settings of the directory that reach outside the process (`trust.OUTSIDE`) take effect only if
    they are also given here, if this user trained the run there, or with `trust`. Modules are never
    imported from the directory itself.

    Args:
        path: The run directory; None generates a new one under `runs/`.
        agent: Name or class of the agent; None opens existing runs only.
        given: Settings given by the user, by name. `preset` names one of `presets`; the other given
            settings take precedence over it. A new run uses the preset of its environment by
            default. In a saved run, settings that are not given keep their saved values. Given
            settings must equal the saved ones, unless they cannot affect the result.
        override: Whether to accept and record settings that differ from the saved ones.
        trust: Whether all settings of the directory may take effect, even if another user created
            it.

    Raises:
        RunError: If the directory is not a run, its settings differ from the given ones, it names
            untrusted code, or a setting is invalid.
    """
    path = None if path is None else Path(path)
    name = None if agent is None else agent_name(agent)
    if given.get("env") is not None:
        environment_name(given["env"])
    if path is not None:
        check_path(path)
    if path is not None and is_run(path):
        return _continued(path, name, given, override, trust)
    if name is None:
        neither = UsageError("pass a run directory, an agent or both; got neither")
        raise neither if path is None else not_a_run(path)
    if path is not None and path.exists() and not _is_empty(path):
        raise UsageError(
            f"{path} exists but is not a run directory (no config.json): choose another --run-dir"
        )
    check_names(given, {*declared_settings(name), "preset"})
    if not given.get("env"):
        raise UsageError("a new run needs an environment: set --env, for example HalfCheetah-v5")
    settings, preset = with_preset(name, given, environment_name(given["env"]), OF_THE_ENVIRONMENT)
    config, agent_config = build(name, settings, is_new=True)
    _check_effect(config, agent_config, given)
    return Run(
        path or _made_up_path(name, config),
        name,
        config,
        agent_config,
        is_new=True,
        made_up=path is None,
        preset=preset,
        trusts_init_from=trust,
    )


def _check_effect(config: RunConfig, agent_config: Any, given: Mapping[str, Any]) -> None:
    """Raises a `RunError` if a given setting has no effect."""
    try:
        config.check_effect(given)
        agent_config.check_effect(given)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _continued(
    path: Path, agent: str | None, given: Mapping[str, Any], override: bool, trusted: bool
) -> Run:
    document = read_run_document(path, logging.WARNING)
    saved_agent = document["agent"]
    if agent not in (None, saved_agent):
        declared_settings(agent)  # raises an error if there is no such agent
        raise UsageError(
            f"{path} is a run of {saved_agent}, not of {agent}: choose another --run-dir"
        )
    mine = given.keys() | ({"agent"} if agent else set())
    untrusted = _untrusted_settings(path, saved_agent, outside_settings(document), mine, trusted)
    config, agent_config = build(saved_agent, document["settings"])
    saved = as_saved(config, agent_config)
    settings, _ = with_preset(saved_agent, given, saved["env"], None, saved)
    _check_fixed(path, saved_agent, saved, settings)
    config, agent_config = build(saved_agent, saved | settings)
    _check_effect(config, agent_config, given)
    wanted = as_saved(config, agent_config)
    changed = _changes(saved, wanted)
    if changed and not override:
        lines = "".join(
            f"  {flag_name(name)}: the run has {format_setting(old)}, you gave "
            f"{format_setting(new)}\n"
            for name, (old, new) in changed.items()
        )
        raise UsageError(
            f"{path} was started with different settings:\n{lines}Omit them to resume with the "
            "saved values, choose another --run-dir, or accept the changes with --override."
        )
    return Run(
        path,
        saved_agent,
        config,
        agent_config,
        is_new=False,
        overridden=changed,
        history=document["history"],
        data=document.get("data", []),
        trusts_init_from=trusted and "init_from" in given,
        trusts_all=trusted,
        untrusted=untrusted,
    )


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Returns both values of each setting that differs and can affect the result."""
    return {
        name: [old[name], value]
        for name, value in new.items()
        if name in old and name not in RESUMABLE and old[name] != value
    }


def _check_fixed(
    path: Path, agent: str, saved: Mapping[str, Any], given: Mapping[str, Any]
) -> None:
    """Raises a `RunError` if an immutable setting of a saved run would change."""
    known, values = declared_settings(agent), SimpleNamespace(**saved)
    for name in given.keys() & known.keys():
        why, fixed = "its checkpoints depend on it", known[name].immutable
        if isinstance(fixed, Requirement):
            why = f"{fixed.text} it is part of the algorithm"
            fixed = fixed.unmet(values, None) is None
        if fixed and given[name] != saved[name]:
            raise UsageError(
                f"{flag_name(name)} of {path} must stay {format_setting(saved[name])}, even with "
                f"--override, because {why}: start a new run, with "
                f"--init-from {path} to start from this policy"
            )


def _untrusted_settings(
    path: Path, agent: str, named: Mapping[str, Any], given: Collection[str], trusted: bool
) -> dict[str, Any]:
    """Returns the untrusted settings of a run directory, before anything is imported.

    Args:
        path: The run directory.
        agent: Name of its agent.
        named: Its settings that reach outside the process.
        given: Names of the settings given by the user, which are trusted.
        trusted: Whether the user trusts the directory.

    Returns:
        The untrusted settings. They are checked when they take effect.

    Raises:
        RunError: If an untrusted setting takes effect when a run is opened, or a module is missing
            or inside the directory.
    """
    alone = {name: value for name, value in named.items() if name not in given}
    for role, module in modules_of(alone).items():
        try:
            check_outside(module, path)
        except (ImportError, ValueError) as error:
            # The environment and its wrappers are reported when the environment is created.
            if role not in named or role == "env":
                continue
            raise UsageError(
                f"{role} {named[role]} of {path} cannot be imported: {error}"
            ) from error
    if trusted or not alone or is_trusted(path, named):
        return {}
    asked = alone.keys() - CHECKED_LATER
    if asked and "agent" not in alone:
        asked &= _unbounded(agent, alone)
    if asked:
        raise _trust_error(path, alone, asked)
    return {name: value for name, value in alone.items() if name in CHECKED_LATER}


def _unbounded(agent: str, saved: Mapping[str, Any]) -> set[str]:
    """Returns non-default settings of an agent that have neither choices nor an upper bound.

    Settings that the agent does not declare are omitted, because `build` rejects them.
    """
    return {
        name
        for name, each in declared_settings(agent).items()
        if name in saved
        and not (each.choices or each.at_most is not None)
        and saved[name] != (list(each.default) if isinstance(each.default, tuple) else each.default)
    }


def _trust_error(path: Path, named: Mapping[str, Any], asked: Set[str]) -> UsageError:
    flags = ", ".join(flag_name(name) for name in sorted(asked) if asked <= RESUMABLE)
    instead = f", or set {flags} yourself" if flags else ""
    if MISSING in places_of(named).values():
        instead += ". A module was not found: first change to the directory that contains it"
    return UsageError(
        f"{path} is not trusted (you have trained no run with this path, these settings and these "
        f"module locations) and would {described(named)}: add --trust (in Python trust=True) if "
        f"you know that this is safe{instead}"
    )


def whole_settings(path: Path, *, trust: bool = False) -> dict[str, Any]:
    """Reads the same as `read_settings`, with defaults for settings that are newer than the run.

    Raises:
        RunError: If `open_run`, which imports the agent, fails.
    """
    run = open_run(path, None, {}, trust=trust)
    if trust:
        run.trust()
    return {"agent": run.agent, **run.settings()}


def _is_empty(path: Path) -> bool:
    """Returns whether a directory has no files except those of a run killed before it began."""
    if not path.is_dir():
        return False
    try:
        return {entry.name for entry in path.iterdir()} <= _LEFT_BY_A_RUN_THAT_NEVER_BEGAN
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error}") from error


def _made_up_path(agent: str, config: RunConfig) -> Path:
    """Returns a readable path, such as `runs/td3-HalfCheetah-v5-0-20261120-184500`."""
    name = readable_name(agent, environment_name(config.env))
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return RUNS / f"{name}-{config.seed}-{stamp}"


def readable_name(agent: str, env: str) -> str:
    """Returns a readable name for runs of an agent in an environment: `td3-HalfCheetah-v5`.

    Args:
        agent: Name of the agent.
        env: Name of the environment.
    """
    env = env.removeprefix(FACTORY).rpartition(":")[2]
    env = re.sub(r"[^\w.-]+", "-", env).strip("-")
    return f"{agent.rpartition(':')[2]}-{env}"
