"""Imports objects named by settings: agents, model factories and environment packages.

Python's usual search path takes precedence over the working directory. This module never imports
TensorFlow, to keep environment processes light.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import os
import site
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from eagerly.errors import UsageError, summary

FACTORY = "factory "  # prefix of the saved names of factories, which are never imported


@contextmanager
def working_directory_last() -> Iterator[None]:
    """Appends the working directory to the module search path inside a `with` block.

    If the directory stayed on the path, the first library that checks whether jax is installed
    would execute a local `jax.py`.
    """
    try:
        here = os.getcwd()
    except OSError:  # the directory was removed
        here = ""
    if not here or here in sys.path or "" in sys.path:
        yield
        return
    sys.path.append(here)
    try:
        yield
    finally:
        with suppress(ValueError):
            sys.path.remove(here)


def around_import(name: str, context: Callable[[], AbstractContextManager[object]]) -> None:
    """Enters a context when a module is first imported, for the duration of that import.

    Args:
        name: The module. Nothing happens if it is already imported.
        context: Creates the context.
    """
    if name not in sys.modules:
        sys.meta_path.insert(0, _Around(name, context))


class _Around(MetaPathFinder):
    """A finder that wraps the import of one module in a context, then removes itself."""

    def __init__(self, name: str, context: Callable[[], AbstractContextManager[object]]) -> None:
        self._name, self._context = name, context

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the spec of the wrapped module, or None for any other module."""
        if fullname != self._name:
            return None
        finders = list(sys.meta_path)
        if self in finders:  # otherwise, another thread has removed it
            finders = finders[finders.index(self) + 1 :]
        searches = (getattr(finder, "find_spec", None) for finder in finders)
        specs = (search(fullname, path, target) for search in searches if search)
        spec = next(filter(None, specs), None)
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            loader.exec_module = execute
            with self._context():
                execute(module)
            with suppress(ValueError):  # another thread may have removed it
                sys.meta_path.remove(self)

        loader.exec_module = exec_module
        return spec


def factory_name(factory: Callable[..., Any]) -> str:
    """Returns the name stored in a run directory for a factory: "factory MODULE:NAME".

    Raises:
        RunError: If the factory is a `functools.partial` with arguments, because its name would
            not record them.
    """
    while isinstance(factory, functools.partial):
        if factory.args or factory.keywords:
            raise UsageError(
                "a factory must not be a functools.partial with arguments, which would not be "
                "saved and compared: pass environment arguments as env_kwargs, and bind other "
                f"arguments in a function; got {factory}"
            )
        factory = factory.func
    named: Any = factory if hasattr(factory, "__qualname__") else type(factory)
    return f"{FACTORY}{named.__module__}:{named.__qualname__}"


def split_name(name: str, role: str, expected: str) -> tuple[str, str]:
    """Splits `module:attribute` into its two parts.

    Args:
        name: The name. Both parts may contain dots.
        role: What the name refers to, for the error message.
        expected: The expected form, for the error message.

    Raises:
        ValueError: If the name has a different form.
    """
    module, colon, attribute = name.partition(":")
    parts = (*module.split("."), *attribute.split("."))
    if module.endswith(".py"):
        raise ValueError(
            f"{role} must be {expected}; got {name!r}: omit the file extension, as in "
            f"{module.removesuffix('.py')}:{attribute}"
        )
    if not colon or not all(part.isidentifier() for part in parts):
        raise ValueError(f"{role} must be {expected}; got {name!r}")
    return module, attribute


def split_call(text: str, role: str, expected: str) -> tuple[str, str, dict[str, Any]]:
    """Splits `module:attribute` or `module:attribute(name=value, ...)` into its parts.

    Args:
        text: The text. Values are Python literals; nothing is executed.
        role: What the text refers to, for the error message.
        expected: The expected form, for the error message.

    Returns:
        The module, the attribute and the keyword arguments.

    Raises:
        ValueError: If the text has a different form.
    """
    name, parenthesis, rest = text.partition("(")
    module, attribute = split_name(name, role, expected)
    if not parenthesis:
        return module, attribute, {}
    try:
        call = ast.parse(f"_({rest}", mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
            raise ValueError(text)
        given = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords if each.arg}
        if len(given) < len(call.keywords):  # `**arguments`, or the same name twice
            raise ValueError(text)
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        raise ValueError(
            f"{role} must be {expected}; got {text!r}: write each argument as name=value, where "
            "the value is a Python literal, such as 3, 0.5, True, 'text' or (84, 84)"
        ) from None
    return module, attribute, given


def import_module(name: str) -> ModuleType:
    """Imports a module that a setting names.

    Args:
        name: Dotted name of the module.

    Raises:
        ImportError: If the module is not found, belongs to the standard library, or raises any
            exception during execution, including `SystemExit`.
        ValueError: If the name is not a module name.
    """
    with imported_for(name):
        try:
            return importlib.import_module(name)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a module may raise any exception
            raise ImportError(summary(error)) from error


def import_object(module: str, attribute: str, what: str) -> Any:
    """Imports the object that a setting names as `module:attribute`.

    Args:
        module: Dotted name of the module.
        attribute: Name in the module, which may contain dots.
        what: What is imported, for the error message.

    Raises:
        ValueError: If the module cannot be imported or has no such attribute.
    """
    try:
        found: Any = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # the user's module may raise anything
        raise ValueError(f"{what} cannot be imported: {error}") from error
    return found


def imported_for(name: str | None) -> AbstractContextManager[None]:
    """Returns a context in which a module can import others from the working directory.

    Args:
        name: Name of the importing module. If it is None or outside the working directory, the
            context does nothing.

    Raises:
        ImportError, ValueError: As in `is_local`.
    """
    return working_directory_last() if name and is_local(name) else nullcontext()


def is_local(name: str) -> bool:
    """Returns whether a module's top-level package lies directly in the working directory.

    No code is executed. Modules on Python's search path take precedence over local ones.

    Raises:
        ImportError: If the module is not found or belongs to the standard library.
        ValueError: If the name is not a module name.
    """
    with suppress(OSError):  # the working directory was removed
        here = Path.cwd()
        return any(home.parent == here for home in _homes(_found(name)))
    return False


def location_of(name: str) -> str:
    """Returns the path of a module's top-level package, or "" if it is in `site-packages`.

    No code is executed. The path is the same whether the package is found in the working directory
    or on Python's search path. It identifies a package that is not installed: other packages may
    have the same name. A namespace package has one path per folder.

    Raises:
        ImportError, ValueError: As in `is_local`.
    """
    installed = {Path(folder).resolve() for folder in _site_packages()}
    homes = [home for home in _homes(_found(name)) if home.parent.resolve() not in installed]
    return os.pathsep.join(dict.fromkeys(str(home.resolve()) for home in homes))


def _site_packages() -> list[str]:
    return [*site.getsitepackages(), site.getusersitepackages()]


def check_outside(name: str, folder: Path) -> None:
    """Checks that a module is not inside a folder, without executing code.

    Raises:
        ImportError: If the module is inside the folder, is not found, or belongs to the standard
            library.
        ValueError: If the name is not a module name.
    """
    inside, places = folder.resolve(), _places(_found(name))
    inner = name.split(".")[1:]
    places += [
        Path(place, *inner[:depth]) for place in places for depth in range(1, len(inner) + 1)
    ]
    if any(place.resolve().is_relative_to(inside) for place in places):
        raise ImportError("it is inside the run directory")


def _found(name: str) -> ModuleSpec:
    """Returns the spec of the top-level package, since finding a submodule would execute it."""
    top, *inner = name.split(".")
    if not all(part.isidentifier() for part in (top, *inner)):
        raise ValueError(f"{name!r} is not a valid module name")
    if top in sys.stdlib_module_names:
        raise ImportError(f"{top} is part of the standard library")
    with working_directory_last():
        found = importlib.util.find_spec(top)
    if found is None:
        raise ImportError(
            f"No module named {top!r}. Install it, run from the directory that contains it, or add "
            "that directory to PYTHONPATH"
        )
    return found


def _places(found: ModuleSpec) -> list[Path]:
    origin = [found.origin] if found.has_location and found.origin else []
    return [Path(place) for place in (*origin, *(found.submodule_search_locations or []))]


def _homes(found: ModuleSpec) -> list[Path]:
    """Returns the files or folders of a top-level module or package."""
    places = _places(found)
    return [place.parent if place.stem == "__init__" else place for place in places]
