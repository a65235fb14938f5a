"""Custom models: finding their factories by name, calling them with a seed, adapting the result."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
import tensorflow as tf

from eagerly.importing import FACTORY, import_module, split_name, while_used
from eagerly.networks.custom import CustomActor, CustomCritic, CustomCritics
from eagerly.policies.heads import ActionHead

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
    except Exception as error:  # whatever stands in the module of somebody else
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


def custom_actor(
    given: str | Factory,
    spaces: tuple[gymnasium.Space, gymnasium.Space],
    seed: int,
    *,
    observations: int,
    head: ActionHead,
    **parts: Any,
) -> CustomActor:
    """Makes an actor with the user's factory.

    Args:
        given: What the setting `actor` holds.
        spaces: Of observations and of actions, as the environment has them.
        seed: Seed of the global generators while the factory runs.
        observations: O, with a mask.
        head: What makes scores of logits.
        **parts: What `CustomModel` takes.

    Raises:
        ValueError: If the factory fails, or makes no actor.
    """
    return CustomActor(_made(given, "actor", spaces, seed), observations, head, **parts)


def custom_critic(
    given: str | Factory,
    spaces: tuple[gymnasium.Space, gymnasium.Space],
    seed: int,
    count: int,
    *,
    sizes: tuple[int, int],
    **parts: Any,
) -> CustomCritic | CustomCritics:
    """Makes critics with the user's factory; one that makes a single critic is called for each.

    Args:
        given: What the setting `critic` holds.
        spaces: Of observations and of actions, as the environment has them.
        seed: Seed of the global generators while the factory runs.
        count: n_critics.
        sizes: O, with a mask, and A.
        **parts: What `CustomModel` takes.

    Raises:
        ValueError: If the factory fails, or makes no critics, or another number.
    """

    def member(index: int) -> CustomCritic:
        return CustomCritic(_made(given, "critic", spaces, seed + index), *sizes, **parts)

    first = member(0)
    if first.n_critics == count:
        return first
    if first.n_critics != 1:
        raise ValueError(_other_number(first, count))
    return CustomCritics([first, *(member(index) for index in range(1, count))], parts["name"])


def custom_models(
    given: str | Factory,
    spaces: tuple[gymnasium.Space, gymnasium.Space],
    seed: int,
    count: int,
    *,
    names: tuple[str, str],
    observations: int,
    head: ActionHead,
    **parts: Any,
) -> tuple[CustomActor, CustomCritic]:
    """Makes actor and critics with one factory of the user.

    Args:
        given: What the setting `models` holds.
        spaces: Of observations and of actions, as the environment has them.
        seed: Seed of the global generators while the factory runs.
        count: n_critics.
        names: Names of actor and critics.
        observations: O, with a mask.
        head: What makes scores of the actor's logits.
        **parts: What `CustomModel` takes.

    Raises:
        ValueError: If the factory fails, or does not make both.
    """
    made = _made(given, "models", spaces, seed)
    if not (isinstance(made, tuple) and len(made) == 2):
        raise ValueError(f"the factory of models must return (actor, critic); it returned {made!r}")
    actor = CustomActor(made[0], observations, head, name=names[0], **parts)
    sizes = observations, head.size
    critic = CustomCritic(made[1], *sizes, name=names[1], masked=head.masked, **parts)
    if critic.n_critics != count:
        raise ValueError(_other_number(critic, count))
    return actor, critic


def _other_number(critic: CustomCritic, count: int) -> str:
    return (
        f"the critic {critic.said} has {critic.n_critics} members and n_critics is {count}: "
        f"let it return [{count}, B], or set n_critics to {critic.n_critics}"
    )


def _made(
    given: str | Factory, role: str, spaces: tuple[gymnasium.Space, gymnasium.Space], seed: int
) -> Any:
    factory = factory_of(given, role)
    known = "torch" in sys.modules
    module = given.partition(":")[0] if isinstance(given, str) else None
    with seeded(seed), while_used(module):
        try:
            made = factory(*spaces)
        except Exception as error:  # whatever the code of somebody else raises
            raise ValueError(
                f"the factory of the {role}, {given if isinstance(given, str) else factory!r}, "
                f"failed when it was called with {spaces[0]} and {spaces[1]}: "
                f"{type(error).__name__}: {error}"
            ) from error
    torch = sys.modules.get("torch")
    if torch and isinstance(made, torch.nn.Module):
        raise ValueError(
            f"the factory of the {role} returned the PyTorch module {type(made).__name__}: let it "
            "return TorchModule(module), of eagerly.networks.torch_module"
        )
    # A factory that was the first to import PyTorch drew from a generator without a seed.
    return made if known or "torch" not in sys.modules else _made(given, role, spaces, seed)
