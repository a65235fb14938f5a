"""Creates environments from an id or a factory, in this process or in a worker."""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import cloudpickle
import gymnasium
from gymnasium.envs.registration import EnvSpec

from eagerly.environments.adapting import adapted, layers
from eagerly.environments.named_wrappers import NamedWrapper, Wrap, find_wrappers
from eagerly.environments.registration import register
from eagerly.environments.rendering import report_mujoco_warnings
from eagerly.errors import INTERRUPTIONS, RunError, UsageError, summary
from eagerly.importing import (
    FACTORY,
    check_outside,
    factory_name,
    import_module,
    imported_for,
    is_local,
    working_directory_last,
)
from eagerly.spaces import text_of
from eagerly.suggestions import environment_suggestion

Factory = Callable[..., gymnasium.Env]
_NUMBERS = {"index", "is_evaluation"}  # passed to factories that declare them


class _Open(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Records that an environment is open, until it is closed, and can recreate it.

    Args:
        env: The environment.
        make: Creates another one with additional keyword arguments.

    Raises:
        RunError: If the environment is already open.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], make: Callable[..., _Open]) -> None:
        super().__init__(env)
        _check_new(env)
        self._make, self._spaces = make, (env.observation_space, env.action_space)
        self._identity = id(env.unwrapped)
        _open[self._identity] = self

    def recreate(self, kwargs: Mapping[str, Any]) -> None:
        """Closes the environment, then creates it with additional keyword arguments.

        Wrappers around this object then wrap the new environment.

        Raises:
            RunError: If the new environment cannot be created or has other spaces. No environment
                is open then.
        """
        self.close()
        new = self._make(kwargs)
        if new._spaces != self._spaces:
            new.close()
            expected, got = (" and ".join(map(text_of, x)) for x in (self._spaces, new._spaces))
            raise RunError(f"with {kwargs}, spaces must stay {expected}; got {got}")
        self.env, self._identity, self._cached_spec = new.env, new._identity, None
        _open[self._identity] = self

    def close(self) -> None:
        """Closes the environment. Further calls do nothing."""
        if _open.get(self._identity) is self:
            del _open[self._identity]
            super().close()


# The open environments, by the `id` of the unwrapped environment. While an entry exists, its value
# keeps that environment alive, so the id is not reused. The entry of an environment that is
# garbage-collected without being closed disappears automatically.
_open: WeakValueDictionary[int, _Open] = WeakValueDictionary()


def _check_new(env: gymnasium.Env[Any, Any]) -> None:
    if id(env.unwrapped) in _open:
        raise RunError(
            "the factory reuses an environment that is still open: create a new one in every call"
        )


def recreate(env: gymnasium.Env[Any, Any], kwargs: Mapping[str, Any]) -> None:
    """Closes an environment that an `EnvironmentMaker` created, and recreates it in its place.

    Args:
        env: The environment, which may be wrapped. It must be reset before the next step.
        kwargs: Keyword arguments, merged over those of the maker.

    Raises:
        RunError: If the new environment cannot be created or has other spaces. The old one is
            closed all the same: call `recreate` again with valid arguments.
        TypeError: If the environment was created in another way.
    """
    for layer in layers(env):
        if isinstance(layer, _Open):
            return layer.recreate(kwargs)
    raise TypeError(f"only environments of an EnvironmentMaker can be recreated; got {env}")


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Pickles a factory. Rejects references to open environments, which pickling would copy."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, gymnasium.Env):
            _check_new(obj)
        return super().reducer_override(obj)


@dataclass(frozen=True)
class EnvironmentMaker:
    """Creates any number of copies of one environment, in this or another process.

    Attributes:
        name: The id, or "factory MODULE:NAME", as stored in the run directory.
        source: The specification registered under the id, or the factory.
        kwargs: Keyword arguments for the environment.
        package: The package that registers the environment, if that package is in the working
            directory; otherwise "".
        is_evaluation: Whether the copies serve evaluations or videos instead of training.
        wrappers: The wrappers of each copy, the innermost first.
    """

    name: str
    source: EnvSpec | Factory
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    package: str = ""
    is_evaluation: bool = False
    wrappers: tuple[NamedWrapper, ...] = ()

    @property
    def declared(self) -> set[str]:
        """Which of `index` and `is_evaluation` the factory declares; none for a registered id."""
        if isinstance(self.source, EnvSpec):
            return set()
        try:
            parameters = inspect.signature(self.source).parameters.values()
        except (TypeError, ValueError):  # compiled code may have no signature
            return set()
        named = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
        return _NUMBERS & {each.name for each in parameters if each.kind in named}

    def __call__(self, index: int = 0, **more: Any) -> gymnasium.Env[Any, Any]:
        """Creates one environment.

        Args:
            index: Index among the training environments, in [0, N), or among those of evaluations:
                0, or 1 for videos. Passed to a factory that declares `index`.
            more: Additional keyword arguments, such as `render_mode`.

        Raises:
            RunError: If the constructor, the factory or a wrapper fails, a required package is
                missing, or the factory returns an object that is not a `gymnasium.Env` or is still
                open.
        """
        about = {"index": index, "is_evaluation": self.is_evaluation}
        kwargs = {name: about[name] for name in sorted(self.declared)} | {**self.kwargs, **more}
        try:
            with imported_for(self.package):
                report_mujoco_warnings()
                if isinstance(self.source, EnvSpec):
                    env = gymnasium.make(self.source, disable_env_checker=True, **kwargs)
                else:
                    env = self.source(**kwargs)
                if isinstance(env, gymnasium.Env):
                    _ = env.observation_space, env.action_space  # raises if a space is missing
        except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
            raise UsageError(
                f"environment {self.name!r} needs a package that is missing: {summary(error)}"
            ) from error
        except INTERRUPTIONS:
            raise
        except BaseException as error:  # a constructor may raise anything
            given = f" with {kwargs}" if kwargs else ""
            raise RunError(
                f"environment {self.name!r} cannot be created{given}: {summary(error)}"
            ) from error
        if not isinstance(env, gymnasium.Env):
            raise RunError(f"{self.name} must return a gymnasium.Env; got {type(env)}")
        try:
            _check_new(env)
            for wrap in self.wrappers:
                env = wrap(env)
            return _Open(adapted(env), partial(self._with, index, more))
        except RunError as error:
            raise RunError(f"environment {self.name!r}: {error}") from error.__cause__

    def _with(self, index: int, more: Mapping[str, Any], kwargs: Mapping[str, Any]) -> Any:
        """Creates an environment with additional keyword arguments."""
        return replace(self, kwargs={**self.kwargs, **kwargs})(index, **more)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickles the maker so that another process can find the package before unpickling.

        Raises:
            RunError: If the factory holds an environment that is still open.
        """
        content = io.BytesIO()
        try:
            _Pickler(content).dump(tuple(vars(self).values()))
        except RunError as error:
            raise RunError(f"environment {self.name!r}: {error}") from None
        packages = self.package, *(wrap.package for wrap in self.wrappers)
        return _unpickled, (content.getvalue(), any(packages))


def _unpickled(content: bytes, needs_working_directory: bool) -> EnvironmentMaker:
    with working_directory_last() if needs_working_directory else nullcontext():
        return EnvironmentMaker(*cloudpickle.loads(content))


def environment_maker(
    env: str | Factory,
    kwargs: Mapping[str, Any] | None = None,
    *,
    wrappers: Iterable[str | Wrap] = (),
    run_dir: Path | None = None,
    is_evaluation: bool = False,
) -> EnvironmentMaker:
    """Looks up an environment without creating it.

    Args:
        env: A Gymnasium id, "package:id" (which first imports the package that registers the id),
            or a factory that returns an environment.
        kwargs: Keyword arguments for the environment.
        wrappers: Names of wrappers, or functions or classes that wrap an environment, the innermost
            first.
        run_dir: The run directory that names the environment, if any. No code in it is imported.
        is_evaluation: Whether the environments serve evaluations or videos instead of training.

    Raises:
        RunError: If the environment does not exist (similar names are suggested), its package
            cannot be imported, or `env` is the stored name of a factory. Also as in
            `find_wrappers`.
    """
    kwargs = dict(kwargs or {})
    if not isinstance(env, str):
        around = find_wrappers(wrappers, run_dir)
        return EnvironmentMaker(environment_name(env), env, kwargs, "", is_evaluation, around)
    if env.startswith(FACTORY):
        # Run directories store a factory's name, but factories are never imported by name.
        raise UsageError(
            f"the environment comes from the Python {env}: pass the factory again from your "
            "program, with eagerly.resume(path, env=the_factory), eagerly.evaluate(policy, "
            "the_factory) or eagerly.export_policy(path, ..., env=the_factory)"
        )
    package, _, name = env.rpartition(":")
    local = _import(package, env, run_dir) if package else ""
    register()
    spec = gymnasium.registry.get(name)
    if not isinstance(spec, EnvSpec):
        hint = environment_suggestion(package, name, gymnasium.registry)
        raise UsageError(f"unknown environment {env!r}. {hint}".rstrip())
    around = find_wrappers(wrappers, run_dir)
    return EnvironmentMaker(env, spec, kwargs, local, is_evaluation, around)


def _import(package: str, env: str, run_dir: Path | None) -> str:
    """Imports the package that registers an environment, but never from the run directory.

    Returns:
        The package if it lies in the working directory, else "".
    """
    try:
        if run_dir:
            check_outside(package, run_dir)
        import_module(package)
        return package if is_local(package) else ""
    except (ImportError, ValueError) as error:
        hint = ". Omit .py" if package.endswith(".py") else ""
        raise UsageError(
            f"environment {env!r} needs the package {package!r}, which cannot be imported: "
            f"{error}{hint}"
        ) from error


def environment_name(env: Any) -> str:
    """Returns the name stored in a run directory: the id, or a factory's `factory_name`.

    Raises:
        RunError: If `env` is neither an id nor a factory, or a partial with arguments.
    """
    if isinstance(env, str):
        return env
    if callable(env):
        return factory_name(env)
    advice = "pass its id, its class, or a function that creates it, such as lambda: MyEnv(...)"
    if isinstance(env, gymnasium.vector.VectorEnv):
        advice = f"pass a single environment, and num_envs={env.num_envs} for several copies"
    elif isinstance(env, gymnasium.Env):
        advice = (
            "A run creates several environments, for example to evaluate and to resume: pass the "
            "class, or lambda: MyEnv(...)"
        )
    raise UsageError(
        "env must be a Gymnasium id, or a class or function that returns a new environment on "
        f"every call; got an instance of {type(env).__name__}: {advice}"
    )
