"""Imports factories of custom models by name, and calls them with a seed."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
import tensorflow as tf

from eagerly.errors import summary
from eagerly.importing import FACTORY, import_object, imported_for, split_name

Factory = Callable[[gymnasium.Space, gymnasium.Space], Any]


def factory_of(given: str | Factory, role: str) -> Factory:
    """Returns the factory that a setting names.

    Raises:
        ValueError: If it cannot be imported or is not callable, or if the run used a factory object
            from a Python program, which has no importable name.
    """
    if not isinstance(given, str):
        return given
    if given.startswith(FACTORY):
        raise ValueError(
            f"the {role} was created by the Python {given}, which cannot be imported by name: pass "
            f"this factory again from Python, as in load_policy(run_dir, {role}=...) or "
            f"resume(run_dir, {role}=...)"
        )
    found = import_object(*split_name(given, role, "module:factory"), f"{role} {given!r}")
    if not callable(found):
        raise ValueError(f"{role} must name a callable factory; {given!r} is {found!r}")
    made: Factory = found
    return made


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Temporarily seeds the global generators of Python, NumPy and PyTorch.

    TensorFlow's generator is seeded, too, but not restored afterwards.
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
        given: Value of the setting `role`.
        role: "actor", "critic" or "models".
        spaces: The environment's observation and action space.
        seed: Seed of the global generators while the factory runs.

    Returns:
        The model, or for "models" the pair (actor, critic).

    Raises:
        ValueError: If the factory is not found, fails, or returns something else.
    """
    factory = factory_of(given, role)
    if hasattr(factory, "trainable_variables"):
        raise ValueError(
            f"{role} must be a function that creates the model, because target networks need more "
            f"of them; got the model {type(factory).__name__}"
        )
    known = "torch" in sys.modules
    module = given.partition(":")[0] if isinstance(given, str) else None
    with seeded(seed), imported_for(module):
        try:
            found = factory(*spaces)
        except Exception as error:  # the user's code may raise anything
            raise ValueError(
                f"the factory of the {role}, {given if isinstance(given, str) else factory!r}, "
                f"failed when called with {spaces[0]} and {spaces[1]}: {summary(error)}"
            ) from error
    torch = sys.modules.get("torch")
    if torch and isinstance(found, torch.nn.Module):
        raise ValueError(
            f"the factory of the {role} returned the PyTorch module {type(found).__name__}: return "
            "eagerly.networks.torch_module.TorchModule(module) instead"
        )
    if not known and torch:  # the factory itself imported PyTorch, so PyTorch was not seeded
        return made(given, role, spaces, seed)
    if role == "models" and not (isinstance(found, tuple) and len(found) == 2):
        raise ValueError(
            f"the factory of models must return (actor, critic); it returned {found!r}"
        )
    return found
