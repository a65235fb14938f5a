"""Making environments: from an id or a factory, here or in a worker, and checking them.

This module never imports TensorFlow: what runs inside an environment's process stays light.
"""

from __future__ import annotations

import difflib
import functools
import math
import numbers
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env

from eagerly.environments.registration import register
from eagerly.environments.rendering import report_mujoco_warnings
from eagerly.errors import RunError
from eagerly.importing import (
    FACTORY,
    check_outside,
    import_module,
    place_of,
    while_used,
    working_directory_last,
)
from eagerly.spaces import Actions, Observations

Factory = Callable[..., gymnasium.Env]


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
            RunError: If it does not take the keyword arguments, or a package that it needs is
                missing.
        """
        kwargs = {**self.kwargs, **more}
        try:
            with while_used(self.package):
                report_mujoco_warnings(self.source)
                if isinstance(self.source, EnvSpec):
                    return gymnasium.make(self.source, disable_env_checker=True, **kwargs)
                env = self.source(**kwargs)
        except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
            raise RunError(
                f"environment {self.name!r} needs a package that is missing: {error}"
            ) from error
        except Exception as error:  # whatever a constructor makes of its arguments
            given = f" with {kwargs}" if kwargs else ""
            why = f"{type(error).__name__}: {error}"
            raise RunError(f"environment {self.name!r} cannot be made{given}: {why}") from error
        if not isinstance(env, gymnasium.Env):
            raise RunError(f"{self.name} must return a gymnasium.Env; it returned {type(env)}")
        return env

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickles itself so that another process finds the package, too, before it is unpickled."""
        if not self.package:
            return super().__reduce_ex__(protocol)
        return _unpickled, (cloudpickle.dumps(tuple(vars(self).values())),)


def _unpickled(content: bytes) -> EnvironmentMaker:
    with working_directory_last():
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
            f"the environment is the Python {env}: give it again from your program, to go on "
            "as open_run(path, agent, {'env': the_factory}), to evaluate beside load_policy(path)"
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
        return package if place_of(package) else ""
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


# Advice for other kinds of agents; unbounded observations and any action bounds are fine here.
_HARMLESS = ("different from the unwrapped", "symmetric and normalized", "infinity")


def _valid_action(
    actions: Actions, draws: np.random.Generator, given: Any, name: str, step: int
) -> Any:
    """Draws what an environment takes, among what its mask allows; None allows everything.

    Raises:
        RunError: If it is no mask, or allows nothing.
    """
    try:
        mask = None if given is None else actions.mask(given)[np.newaxis]
    except ValueError as error:
        raise RunError(f"environment {name!r}, step {step} of an episode: {error}") from error
    return actions.unflatten(actions.to_environment(actions.random(draws, 1, mask))[0])


class _OfValidActions(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Takes valid actions in the place of others: Gymnasium's checker knows no masks."""

    def __init__(self, env: gymnasium.Env[Any, Any], name: str, *, masks: bool) -> None:
        super().__init__(env)
        self._actions, self._name, self._masks = Actions(env.action_space), name, masks
        self._mask: Any = None
        self._step = 0
        self.keys: set[str] = set()  # what every `info` had, together

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._draws = np.random.default_rng(0)  # the same after every reset, as is asked for
        self._step = 0
        result = self.env.reset(seed=seed, options=options)
        self._remember(result)
        return result

    def step(self, action: Any) -> Any:
        if self._actions.choices and self._mask is not None:
            action = _valid_action(self._actions, self._draws, self._mask, self._name, self._step)
        self._step += 1
        result = self.env.step(action)
        self._remember(result)
        return result

    def _remember(self, result: Any) -> None:
        info = result[-1] if isinstance(result, tuple) and result else None
        self._mask = None
        if self._masks and isinstance(info, Mapping):
            self._mask = info.get("action_mask")
            self.keys |= {key for key in info if isinstance(key, str)}


def check_environment(
    env: gymnasium.Env[Any, Any], name: str, say: Callable[[str], None], *, masks: bool = True
) -> None:
    """Runs Gymnasium's checker, and looks whether episodes repeat themselves from their seed.

    Args:
        env: The environment; it is reset and stepped.
        name: Its name in messages.
        say: Takes a line about each thing that is odd but can be trained on.
        masks: Whether what is not valid, by its masks, is left out.

    Raises:
        RunError: If it does not keep to Gymnasium's interface.
    """
    spec = env.spec
    declared = spec.nondeterministic if spec else None
    if spec:
        spec.nondeterministic = True  # whether it is deterministic is seen below, and no error
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        checked = _OfValidActions(env, name, masks=masks)
        try:
            check_env(checked, skip_render_check=True, skip_close_check=True)
        except RunError:
            raise
        except Exception as error:  # the checker's findings, or what the environment itself raised
            why = f"{type(error).__name__}: {error}".rstrip(".")
            raise RunError(
                f"environment {name!r} fails Gymnasium's checker: {why}. Mend it, or leave the "
                "check out with --no-check-env."
            ) from error
        finally:
            if spec:
                spec.nondeterministic = bool(declared)
    for warning in caught:
        if not any(words in str(warning.message) for words in _HARMLESS):
            say(f"environment {name!r}: {warning.message}")
    near = difflib.get_close_matches("action_mask", checked.keys, cutoff=0.7)
    if Actions(env.action_space).choices and near and "action_mask" not in checked.keys:
        say(
            f"environment {name!r}: info holds {near[0]!r}, but no 'action_mask': every choice is "
            "taken as valid"
        )
    if not _repeats_itself(env, name, masks):
        say(
            f"environment {name!r} does not repeat itself from its seed: runs differ from one "
            "another, and a continued run begins a fresh episode"
        )


def _repeats_itself(env: gymnasium.Env[Any, Any], name: str, masks: bool) -> bool:
    actions = Actions(env.action_space)
    observations = Observations(env.observation_space)
    seen = []
    for _ in range(2):
        draws = np.random.default_rng(0)
        observation, info = env.reset(seed=0)
        trace = [observations.flatten(observation)]
        for step in range(3):
            given = info.get("action_mask") if masks and actions.choices else None
            action = _valid_action(actions, draws, given, name, step)
            observation, reward, terminated, truncated, info = env.step(action)
            trace += [observations.flatten(observation), np.array(reward)]
            if trace[-1].ndim:
                raise RunError(
                    f"environment {name!r}: reward must be a number; got {reward!r} of shape "
                    f"{trace[-1].shape}"
                )
            if terminated or truncated:
                break
        seen.append(trace)
    return len(seen[0]) == len(seen[1]) and all(
        np.array_equal(one, other) for one, other in zip(*seen, strict=True)
    )


def numeric_items(info: Mapping[str, Any]) -> dict[str, float]:
    """Picks the finite numbers and truth values out of an `info` dictionary."""
    return {
        key: float(value)
        for key, value in info.items()
        if isinstance(value, numbers.Real | np.bool_) and math.isfinite(value)
    }
