"""Importing what a setting names: an agent, a factory of models, the package of an environment.

A module is looked for where Python looks, and behind all of that in the working directory. This
module never imports TensorFlow: what runs inside an environment's process stays light.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

FACTORY = "factory "  # begins the name that is kept of a factory from Python, never imported


@contextmanager
def working_directory_last() -> Iterator[None]:
    """Puts the working directory at the end of the module search path, only while entered.

    Left there, a file `jax.py` in it would be executed by the first library that looks whether
    jax is installed.
    """
    try:
        here = os.getcwd()
    except OSError:  # it was removed
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


def around_import(
    name: str, context: Callable[[], AbstractContextManager[object]]
) -> Callable[[], None]:
    """Enters a context while a module is imported for the first time, if it ever is.

    Args:
        name: The module; it must not have been imported yet.
        context: Makes the context.

    Returns:
        Ends the waiting for it.
    """
    finder = _Around(name, context)
    sys.meta_path.insert(0, finder)
    return finder.remove


class _Around(MetaPathFinder):
    """Finds a module as Python would without it, and removes itself."""

    def __init__(self, name: str, context: Callable[[], AbstractContextManager[object]]) -> None:
        self._name, self._context = name, context

    def remove(self) -> None:
        """Removes itself, if it is still there."""
        with suppress(ValueError):
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Finds the module it is there for, and no other."""
        if fullname != self._name or self not in sys.meta_path:
            return None
        self.remove()
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            sys.meta_path.insert(0, self)  # it may be found later
            return spec
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # of the instance, which then has its class's again
            with self._context():
                execute(module)

        loader.exec_module = exec_module
        return spec


def split_name(name: str, role: str, expected: str) -> tuple[str, str]:
    """Splits `module:attribute`.

    Args:
        name: The name; both parts may have dots.
        role: What it names, for the message.
        expected: How it must look, for the message.

    Raises:
        ValueError: If it looks otherwise.
    """
    module, colon, attribute = name.partition(":")
    parts = (*module.split("."), *attribute.split("."))
    if module.endswith(".py"):
        raise ValueError(
            f"{role} must be {expected}; got {name!r}. A module is named without its ending, "
            f"{module.removesuffix('.py')}:{attribute}"
        )
    if not colon or not all(part.isidentifier() for part in parts):
        raise ValueError(f"{role} must be {expected}; got {name!r}")
    return module, attribute


def import_module(name: str) -> ModuleType:
    """Imports a module that a setting names.

    Args:
        name: Its name, with dots.

    Raises:
        ImportError: If it is not found, belongs to Python itself, or raises while it is executed,
            `SystemExit` included.
        ValueError: If the name is not that of a module.
    """
    with imported_for(name):
        try:
            return importlib.import_module(name)
        except (ImportError, KeyboardInterrupt):
            raise
        except BaseException as error:  # a module may raise what it likes
            raise ImportError(f"{type(error).__name__}: {error}") from error


def imported_for(name: str | None) -> AbstractContextManager[None]:
    """Lets a module that lies in the working directory import its neighbours, while entered.

    Args:
        name: Its name; None, and modules that lie elsewhere, need nothing.

    Raises:
        ImportError, ValueError: As `origin_of`.
    """
    return working_directory_last() if name and origin_of(name) else nullcontext()


def origin_of(name: str) -> str:
    """Returns where a module lies if that is the working directory, else "".

    Nothing is executed. What is installed is found before what lies in the working directory; so a
    name means the same everywhere, or something else in every directory.

    Raises:
        ImportError: If it is found nowhere, or belongs to Python itself.
        ValueError: If the name is not that of a module.
    """
    found = _found(name)
    with suppress(OSError):
        here = Path.cwd()
        for place in _places(found):
            home = place.parent if place.stem == "__init__" else place
            if home.parent == here:
                return str(home.resolve())
    return ""


def check_outside(name: str, folder: Path) -> None:
    """Refuses a module that lies in a folder; nothing is executed.

    Raises:
        ImportError: If it lies there, is not found, or belongs to Python itself.
        ValueError: If the name is not that of a module.
    """
    inside, places = folder.resolve(), _places(_found(name))
    inner = name.split(".")[1:]
    places += [
        Path(place, *inner[:depth]) for place in places for depth in range(1, len(inner) + 1)
    ]
    if any(place.resolve().is_relative_to(inside) for place in places):
        raise ImportError("it lies in the run directory")


def _found(name: str) -> ModuleSpec:
    """Finds the outermost package of a module: looking for an inner one would execute the outer."""
    top, *inner = name.split(".")
    if not all(part.isidentifier() for part in (top, *inner)):
        raise ValueError(f"{name!r} is not the name of a module")
    if top in sys.stdlib_module_names:
        raise ImportError(f"{top} belongs to Python itself")
    with working_directory_last():
        found = importlib.util.find_spec(top)
    if found is None:
        raise ModuleNotFoundError(f"No module named {top!r}", name=top)
    return found


def _places(found: ModuleSpec) -> list[Path]:
    origin = [found.origin] if found.has_location and found.origin else []
    return [Path(place) for place in (*origin, *(found.submodule_search_locations or []))]
