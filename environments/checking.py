"""Checking an environment before a run: Gymnasium's checker, and whether episodes repeat."""

from __future__ import annotations

import difflib
import logging
import warnings
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils.env_checker import check_env

from eagerly.errors import RunError
from eagerly.spaces import Actions, Observations

_log = logging.getLogger(__name__)
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


def check_environment(env: gymnasium.Env[Any, Any], name: str, *, masks: bool = True) -> None:
    """Runs Gymnasium's checker, and looks whether episodes repeat themselves from their seed.

    What is odd but can be trained on is logged as a warning.

    Args:
        env: The environment; it is reset and stepped.
        name: Its name in messages.
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
            _log.warning(f"environment {name!r}: {warning.message}")
    near = difflib.get_close_matches("action_mask", checked.keys, cutoff=0.7)
    if Actions(env.action_space).choices and near and "action_mask" not in checked.keys:
        _log.warning(
            f"environment {name!r}: info holds {near[0]!r}, but no 'action_mask': every choice is "
            "taken as valid"
        )
    if not _repeats_itself(env, name, masks):
        _log.warning(
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
