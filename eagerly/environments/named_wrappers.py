"""Wrappers of environments that a setting names, as `module:factory(name=value, ...)`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium

from eagerly.errors import INTERRUPTIONS, RunError, UsageError, summary
from eagerly.importing import (
    FACTORY,
    check_outside,
    factory_name,
    import_module,
    import_object,
    imported_for,
    is_local,
    split_call,
)
from eagerly.suggestions import spelling_suggestion

Wrap = Callable[..., gymnasium.Env[Any, Any]]
_MODULES = "eagerly.wrappers", "gymnasium.wrappers"  # suggested for similar names
WRAPPER_FORM = "module:factory or module:factory(name=value, ...)"


@dataclass(frozen=True)
class NamedWrapper:
    """A function or class that wraps an environment, and its arguments.

    Attributes:
        name: The text that names it, or "factory MODULE:NAME" for a Python object.
        factory: Called with an environment and `kwargs`.
        kwargs: Its keyword arguments.
        package: Its module if that lies in the working directory; otherwise "".
    """

    name: str
    factory: Wrap
    kwargs: Mapping[str, Any]
    package: str

    def __call__(self, env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
        """Returns the wrapped environment. If that fails, the environment is closed.

        Raises:
            RunError: If the factory fails or returns an object that is not a `gymnasium.Env`.
        """
        cause: BaseException | None = None
        try:
            with imported_for(self.package):
                wrapped: Any = self.factory(env, **self.kwargs)
            if isinstance(wrapped, gymnasium.Env):
                _ = wrapped.observation_space, wrapped.action_space  # raises if one is missing
                return wrapped
            why = f"it must return a gymnasium.Env; got {type(wrapped)}"
        except INTERRUPTIONS:
            raise
        except BaseException as error:  # a wrapper may raise anything
            cause, why = error, summary(error)
        with suppress(Exception):
            env.close()
        raise RunError(f"wrapper {self.name!r} cannot wrap the environment: {why}") from cause


def find_wrappers(
    wrappers: Iterable[str | Wrap], run_dir: Path | None = None
) -> tuple[NamedWrapper, ...]:
    """Imports wrappers without creating an environment.

    Args:
        wrappers: Names, or functions and classes that wrap an environment.
        run_dir: The run directory that names them, if any. No code in it is imported.

    Raises:
        RunError: If a wrapper cannot be imported, does not have the named arguments (similar names
            are suggested), or is the stored name of a factory.
    """
    if isinstance(wrappers, str) or callable(wrappers):
        raise UsageError(f"wrapper must be a list of {WRAPPER_FORM} or callables; got {wrappers!r}")
    return tuple(
        _found(each, run_dir)
        if isinstance(each, str)
        else NamedWrapper(factory_name(each), each, {}, "")
        for each in wrappers
    )


def _found(name: str, run_dir: Path | None) -> NamedWrapper:
    if name.startswith(FACTORY):
        # Run directories store a factory's name, but factories are never imported by name.
        raise UsageError(
            f"a wrapper of the environment comes from the Python {name}: pass all wrappers again "
            "from your program, as wrapper=[...] of eagerly.resume, eagerly.evaluate or "
            "eagerly.export_policy"
        )
    what = f"wrapper {name!r}"
    try:
        module, attribute, kwargs = split_call(name, "wrapper", WRAPPER_FORM)
    except ValueError as error:
        raise UsageError(str(error)) from error
    try:
        if run_dir:
            check_outside(module, run_dir)
        package = module if is_local(module) else ""
        imported: Any = import_module(module)
    except (ImportError, ValueError) as error:
        hint = spelling_suggestion(module, _MODULES, cutoff=0.85)
        raise UsageError(f"{what} cannot be imported: {error}. {hint}".rstrip(". ")) from error
    try:
        factory = import_object(module, attribute, what)
    except ValueError as error:
        hint = spelling_suggestion(attribute, dir(imported))
        raise UsageError(f"{error}. {hint}".removesuffix(". ")) from error
    if not callable(factory):
        raise UsageError(f"{what} must be a class or function; got {type(factory)}")
    _check_arguments(factory, kwargs, what)
    return NamedWrapper(name, factory, kwargs, package)


def _check_arguments(factory: Wrap, kwargs: Mapping[str, Any], what: str) -> None:
    """Raises a `RunError` if a factory does not accept an environment and these arguments."""
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # compiled code may have no signature
        return
    try:
        signature.bind(None, **kwargs)
    except TypeError as error:
        _, *names = signature.parameters or [""]
        hints = [spelling_suggestion(name, names) for name in kwargs if name not in names]
        raise UsageError(" ".join([f"{what}: {error}.", *filter(None, hints)])) from error
