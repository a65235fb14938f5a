"""Creates environments from an id or a factory, in this process or in a worker."""

from __future__ import annotations

import difflib
import functools
import io
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import cloudpickle
import gymnasium
from gymnasium.envs.registration import EnvSpec

from eagerly.environments.adapting import adapted
from eagerly.environments.registration import register
from eagerly.environments.rendering import report_mujoco_warnings
from eagerly.errors import INTERRUPTIONS, RunError
from eagerly.importing import (
    FACTORY,
    check_outside,
    import_module,
    imported_for,
    origin_of,
    working_directory_last,
)

Factory = Callable[..., gymnasium.Env]


class _Open(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Registers an environment as open until it is closed.

    Raises:
        RunError: If it is open already.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        _check_new(env)
        self._identity = id(env.unwrapped)
        _open[self._identity] = self

    def close(self) -> None:
        """Closes the environment."""
        _open.pop(self._identity, None)
        super().close()


# By the identity of what is inside. The values keep it alive, so no identity is used again; an
# environment that is dropped without being closed leaves by itself.
_open: WeakValueDictionary[int, _Open] = WeakValueDictionary()


def _check_new(env: gymnasium.Env[Any, Any]) -> None:
    if id(env.unwrapped) in _open:
        raise RunError(
            "the factory returned the environment that it returned before: make a new one in every "
            "call"
        )


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    """Pickles a factory, unless it holds an open environment: every process would get a copy."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, gymnasium.Env):
            _check_new(obj)
        return super().reducer_override(obj)


@dataclass(frozen=True)
class EnvironmentMaker:
    """Makes any number of copies of one environment; it can be sent to another process.

    Attributes:
        name: The id, or "factory MODULE:NAME": what a run directory keeps.
        source: What is registered under the id, or the factory.
        kwargs: Keyword arguments for it.
        package: The package that registers it, if that lies in the working directory, else "".
    """

    name: str
    source: EnvSpec | Factory
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    package: str = ""

    def __call__(self, **more: Any) -> gymnasium.Env[Any, Any]:
        """Makes one environment.

        Args:
            more: Further keyword arguments, such as `render_mode`.

        Raises:
            RunError: If it does not take the keyword arguments, a package that it needs is missing,
                or the environment is one that is still open.
        """
        kwargs = {**self.kwargs, **more}
        try:
            with imported_for(self.package):
                report_mujoco_warnings()
                if isinstance(self.source, EnvSpec):
                    env = gymnasium.make(self.source, disable_env_checker=True, **kwargs)
                else:
                    env = self.source(**kwargs)
                if isinstance(env, gymnasium.Env):
                    _ = env.observation_space, env.action_space  # raises where it has none
        except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
            raise RunError(
                f"environment {self.name!r} needs a package that is missing: {error}"
            ) from error
        except INTERRUPTIONS:
            raise
        except BaseException as error:  # a constructor may raise anything
            given = f" with {kwargs}" if kwargs else ""
            why = f"{type(error).__name__}: {error}"
            raise RunError(f"environment {self.name!r} cannot be made{given}: {why}") from error
        if not isinstance(env, gymnasium.Env):
            raise RunError(f"{self.name} must return a gymnasium.Env; it returned {type(env)}")
        try:
            return _Open(adapted(env))
        except RunError as error:
            raise RunError(f"environment {self.name!r}: {error}") from None

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickles itself so that another process finds the package, too, before it is unpickled.

        Raises:
            RunError: If the factory holds an environment that is still open.
        """
        content = io.BytesIO()
        try:
            _Pickler(content).dump(tuple(vars(self).values()))
        except RunError as error:
            raise RunError(f"environment {self.name!r}: {error}") from None
        return _unpickled, (content.getvalue(), bool(self.package))


def _unpickled(content: bytes, needs_working_directory: bool) -> EnvironmentMaker:
    with working_directory_last() if needs_working_directory else nullcontext():
        return EnvironmentMaker(*cloudpickle.loads(content))


def environment_maker(
    env: str | Factory, kwargs: Mapping[str, Any] | None = None, *, run_dir: Path | None = None
) -> EnvironmentMaker:
    """Finds an environment; nothing is made yet.

    Args:
        env: A Gymnasium id, "package:id" to import the package that registers it first, or a
            factory that returns an environment.
        kwargs: Keyword arguments for it.
        run_dir: The run directory that names it, if one does: nothing is imported from there.

    Raises:
        RunError: If there is no such environment (near names are suggested), its package cannot
            be imported, or `env` is the name of a factory.
    """
    kwargs = dict(kwargs or {})
    if not isinstance(env, str):
        return EnvironmentMaker(environment_name(env), env, kwargs)
    if env.startswith(FACTORY):
        # A run directory may name it; what was given in Python is never called by its name.
        raise RunError(
            f"the environment is the Python {env}: give it again from your program, to resume as "
            "eagerly.resume(path, env=the_factory), to evaluate as eagerly.evaluate(policy, "
            "the_factory), to export as eagerly.export_policy(path, ..., env=the_factory)"
        )
    package, _, name = env.rpartition(":")
    local = _import(package, env, run_dir) if package else ""
    register()
    spec = gymnasium.registry.get(name)
    if not isinstance(spec, EnvSpec):
        before = f"{package}:" if package else ""
        near = [before + n for n in difflib.get_close_matches(name, gymnasium.registry, n=3)]
        hint = f"Did you mean {' or '.join(near)}? " if near else ""
        if not package:
            hint += "One that a package registers is named package:id."
        raise RunError(f"there is no environment {env!r}. {hint}".rstrip())
    return EnvironmentMaker(env, spec, kwargs, local)


def _import(package: str, env: str, run_dir: Path | None) -> str:
    """Imports the package that registers an environment, unless a run directory brought it.

    Returns:
        Its name if it lies in the working directory, else "".
    """
    try:
        if run_dir:
            check_outside(package, run_dir)
        import_module(package)
        return package if origin_of(package) else ""
    except (ImportError, ValueError) as error:
        raise RunError(
            f"environment {env!r} needs the package {package!r}, which cannot be imported: "
            f"{error}. Install it, or run from the directory that holds it."
        ) from error


def environment_name(env: str | Factory) -> str:
    """Returns what a run directory keeps of an id (itself) or a factory (see `factory_name`)."""
    return env if isinstance(env, str) else factory_name(env)


def factory_name(factory: Callable[..., Any]) -> str:
    """Returns what a run directory keeps of a factory: where it is defined.

    Raises:
        RunError: If it is a `functools.partial` with arguments, which would not be kept.
    """
    while isinstance(factory, functools.partial):
        if factory.args or factory.keywords:
            raise RunError(
                "arguments inside a factory would not be kept and compared: give those of an "
                "environment as env_kwargs, and write a function around those of a model; got "
                f"{factory}"
            )
        factory = factory.func
    named: Any = factory if hasattr(factory, "__qualname__") else type(factory)
    return f"{FACTORY}{named.__module__}:{named.__qualname__}"
