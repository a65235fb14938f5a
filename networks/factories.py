"""Factories of custom models: found by name, and called with a seed."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
import tensorflow as tf

from eagerly.importing import FACTORY, import_module, imported_for, split_name

Factory = Callable[[gymnasium.Space, gymnasium.Space], Any]


def factory_of(given: str | Factory, role: str) -> Factory:
    """Finds the factory that a setting names.

    Raises:
        ValueError: If it cannot be imported, or is the name of a factory from a Python program.
    """
    if not isinstance(given, str):
        return given
    if given.startswith(FACTORY):
        raise ValueError(
            f"the {role} is made by the Python {given}: give it again from your program, as "
            f"{{'{role}': the_factory}} beside the other settings"
        )
    module, name = split_name(given, role, "module:factory")
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:  # whatever the user's module raises
        advice = "Run from the directory that holds it, or put that on PYTHONPATH"
        if not isinstance(error, ModuleNotFoundError):
            advice = "Mend it, or name another one"
        raise ValueError(
            f"{role} {given!r} cannot be imported: {type(error).__name__}: {error}. {advice}"
        ) from error
    if not callable(found):
        raise ValueError(f"{role} must name a factory, {given!r} is {found!r}")
    made: Factory = found
    return made


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Lets the global generators of Python, NumPy, TensorFlow and PyTorch begin at `seed`.

    All but TensorFlow's are put back afterwards.
    """
    python, array = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch = sys.modules.get("torch")
    drawn = torch.get_rng_state() if torch else None
    if torch:
        torch.manual_seed(seed)
    tf.random.set_seed(seed)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(array)
        if torch:
            torch.set_rng_state(drawn)


def made(
    given: str | Factory, role: str, spaces: tuple[gymnasium.Space, gymnasium.Space], seed: int
) -> Any:
    """Calls the user's factory.

    Args:
        given: What the setting `role` holds.
        role: "actor", "critic" or "models".
        spaces: Of observations and of actions, as the environment has them.
        seed: Seed of the global generators while the factory runs.

    Returns:
        What it made; of models a pair.

    Raises:
        ValueError: If the factory is not found, fails, or makes something else.
    """
    factory = factory_of(given, role)
    known = "torch" in sys.modules
    module = given.partition(":")[0] if isinstance(given, str) else None
    with seeded(seed), imported_for(module):
        try:
            found = factory(*spaces)
        except Exception as error:  # whatever the user's code raises
            raise ValueError(
                f"the factory of the {role}, {given if isinstance(given, str) else factory!r}, "
                f"failed when it was called with {spaces[0]} and {spaces[1]}: "
                f"{type(error).__name__}: {error}"
            ) from error
    torch = sys.modules.get("torch")
    if torch and isinstance(found, torch.nn.Module):
        raise ValueError(
            f"the factory of the {role} returned the PyTorch module {type(found).__name__}: let it "
            "return TorchModule(module), of eagerly.networks.torch_module"
        )
    if not known and torch:  # it was the first to import PyTorch, whose generator had no seed
        return made(given, role, spaces, seed)
    if role == "models" and not (isinstance(found, tuple) and len(found) == 2):
        raise ValueError(
            f"the factory of models must return (actor, critic); it returned {found!r}"
        )
    return found
