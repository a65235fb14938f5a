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


class _ValidActions(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Takes random valid actions in the place of others: Gymnasium's checker knows no masks."""

    def __init__(self, env: gymnasium.Env[Any, Any], name: str, *, masks: bool) -> None:
        super().__init__(env)
        self.actions, self._name = Actions(env.action_space), name
        self._masks = masks and bool(self.actions.choices)
        self.keys: set[str] = set()  # what every `info` had, together

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._draws = np.random.default_rng(0)  # the same after every reset, as is asked for
        self._step = 0
        return self._remembered(self.env.reset(seed=seed, options=options))

    def step(self, action: Any) -> Any:
        try:
            mask = None if self._given is None else self.actions.mask(self._given)[np.newaxis]
        except ValueError as error:
            raise RunError(
                f"environment {self._name!r}, step {self._step} of an episode: {error}"
            ) from error
        valid = self.actions.to_environment(self.actions.random(self._draws, 1, mask))[0]
        self._step += 1
        return self._remembered(self.env.step(self.actions.unflatten(valid)))

    def _remembered(self, result: Any) -> Any:
        info = result[-1] if isinstance(result, tuple) and result else None
        self._given: Any = None
        if isinstance(info, Mapping):
            self._given = info.get("action_mask") if self._masks else None
            self.keys |= {key for key in info if isinstance(key, str)}
        return result


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
        checked = _ValidActions(env, name, masks=masks)
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
    if masks and checked.actions.choices and near and "action_mask" not in checked.keys:
        _log.warning(
            f"environment {name!r}: info holds {near[0]!r}, but no 'action_mask': every choice is "
            "taken as valid"
        )
    if not _repeats_itself(checked, name):
        _log.warning(
            f"environment {name!r} does not repeat itself from its seed: runs differ from one "
            "another, and a continued run begins a fresh episode"
        )


def _repeats_itself(env: _ValidActions, name: str) -> bool:
    observations = Observations(env.observation_space)
    seen = []
    for _ in range(2):
        trace = [observations.flatten(env.reset(seed=0)[0])]
        for _ in range(3):
            observation, reward, terminated, truncated, _ = env.step(None)
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
