"""Checks of an environment before a run: Gymnasium's checker and reproducible episodes."""

from __future__ import annotations

import difflib
import logging
import re
import reprlib
import warnings
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import NormalizeObservation, NormalizeReward

from eagerly.environments.adapting import layers, takes_seed
from eagerly.environments.guard import GuardedEnvironment
from eagerly.environments.observation_checks import (
    Deviations,
    Precision,
    repeats_itself,
    seeds_hide_starts,
)
from eagerly.errors import INTERRUPTIONS, RunError, location, summary
from eagerly.spaces import Actions, Observations, outside, text_of
from eagerly.spaces.description import first_outside

_log = logging.getLogger(__name__)
# Parts of warnings that are not reported, because they do not apply here: unbounded observations,
# all action bounds and boolean rewards are supported. `GuardedEnvironment` rejects rewards that are
# not numbers.
_HARMLESS = (
    "different from the unwrapped",
    "symmetric and normalized",
    "infinity",
    "must be a float, int",
    "Casting input",
)
_COLOURED = re.compile("^\x1b\\[[0-9;]*m(?:WARN: )?(.*)\x1b\\[0m$", re.DOTALL)
# Wrappers whose statistics persist across episodes, with the consequence stated in the warning.
_CARRIES: dict[type[NormalizeReward[Any, Any] | NormalizeObservation[Any, Any]], str] = {
    NormalizeReward: "evaluations and curves show scaled rewards",
    NormalizeObservation: (
        "observations are scaled differently in evaluations and in a loaded policy than in "
        "training (use --normalize-observations, which saves the statistics with the policy)"
    ),
}
# Disables Gymnasium's determinism check: here, nondeterminism only causes a warning.
_UNDETERMINED = EnvSpec("Checked-v0", nondeterministic=True)


class _ValidActions(gymnasium.Wrapper[Any, Any, Any, Any]):
    """The view of an environment that is passed to Gymnasium's checker.

    Replaces each action with a random valid one, because the checker ignores action masks. Removes
    observation entries that no network reads, since their values may be arbitrary. Hides
    `Deviations`, nondeterminism and a missing `super().reset(seed=seed)` from the checker, which
    would raise an error: `check_environment` only logs warnings.

    Args:
        env: The environment.
        name: Name used in messages.
        masks: Whether random actions respect the action masks in `info`.
        observations: Observation layout; None leaves observations unchanged.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        name: str,
        *,
        masks: bool,
        observations: Observations | None = None,
    ) -> None:
        super().__init__(env)
        self._observations = observations
        if observations is not None:
            self.observation_space = observations.kept_space
        self.actions, self._name = Actions(env.action_space), name
        self._masks = masks and bool(self.actions.choices)
        self.deviations = Deviations()
        self.keys: set[str] = set()  # union of the keys of all `info` dictionaries
        self.seeds_generator = True  # whether every seed reached `self.np_random`
        self._generator: np.random.Generator | None = None
        self._result: Any = None

    @property
    def spec(self) -> EnvSpec:  # type: ignore[override]
        return _UNDETERMINED

    @property
    def unwrapped(self) -> gymnasium.Env[Any, Any]:
        return self

    @property
    def _np_random(self) -> np.random.Generator | None:  # type: ignore[override]
        return self._generator

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._draws = np.random.default_rng(0)  # the same actions in every episode
        self._step = 0
        inner = self.env.unwrapped
        before = getattr(inner, "_np_random", None)
        result = self.env.reset(seed=seed, options=options)
        if seed is not None:
            self._generator = np.random.default_rng(seed)
            self.seeds_generator &= getattr(inner, "_np_random", None) is not before
        return self._seen(result)

    def step(self, action: Any) -> Any:
        try:
            mask = None if self._given is None else self.actions.mask(self._given)[np.newaxis]
        except ValueError as error:
            raise RunError(
                f"environment {self._name!r}, step {self._step} of an episode: {error}"
            ) from error
        valid = self.actions.to_environment(self.actions.random(self._draws, 1, mask))[0]
        self._step += 1
        return self._seen(self.env.step(self.actions.unflatten(valid)))

    def _seen(self, result: Any) -> Any:
        """Removes unread entries and deviations from the result of `reset` or `step`.

        Stores the result and returns it.
        """
        if self._observations is not None and isinstance(result, tuple) and result:
            kept = self._observations.kept(result[0])
            result = self.deviations.corrected(self.observation_space, kept), *result[1:]
        self._result = result
        info = result[-1] if isinstance(result, tuple) and result else None
        self._given: Any = None
        if isinstance(info, Mapping):
            self._given = info.get("action_mask") if self._masks else None
            self.keys |= {key for key in info if isinstance(key, str)}
        return result

    def shown(self) -> str:
        """Describes the first entry of the last observation that is not in its space, if any."""
        found = None
        if isinstance(self._result, tuple) and self._result:
            found = outside(self.observation_space, self._result[0])
        if found is None:
            return ""
        path, space, value = found
        came = f"{type(value).__name__} {reprlib.repr(value)}"
        if isinstance(value, np.ndarray):
            came = f"{value.dtype} of shape {value.shape}"
            if value.size and value.dtype.kind in "biuf":
                came += f", values from {value.min()} to {value.max()}"
                if value.shape == space.shape and (first := first_outside(space, value)):
                    came += f"; {first}"
        at = f"entry {path!r}: " if path else ""
        return f" ({at}expected {text_of(space)}; got {came})"


def check_environment(
    env: gymnasium.Env[Any, Any],
    name: str,
    *,
    observations: Observations | None = None,
    masks: bool = True,
) -> bool:
    """Runs Gymnasium's checker and tests whether episodes are reproducible from their seed.

    Problems that do not prevent training are logged as warnings.

    Args:
        env: A new environment, which is reset and stepped.
        name: Name used in messages.
        observations: Observation layout, if it is not the default for the space.
        masks: Whether random actions respect the action masks in `info`.

    Returns:
        True if two short episodes with the same seed, with an episode of another seed in between,
        were identical and no wrapper carries statistics across episodes.

    Raises:
        RunError: If the environment violates Gymnasium's interface, or an observation is NaN or
            infinite.
    """
    guarded = GuardedEnvironment(env, f"environment {name!r}", observations=observations)
    plays = _ValidActions(guarded, name, masks=masks)
    laid_out = observations or Observations(env.observation_space)
    precision = Precision(laid_out)
    repeats: bool | None = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # Episodes are compared before the checker runs, because some differences appear only in the
        # first episodes. Errors are ignored here: the checker explains them better, and those that
        # it misses are raised again by the second comparison below.
        with suppress(RunError, ValueError):
            repeats = repeats_itself(plays, name, laid_out, precision)
        checked = _ValidActions(env, name, masks=masks, observations=laid_out)
        try:
            check_env(checked, skip_render_check=True, skip_close_check=True)
        except (RunError, *INTERRUPTIONS):
            raise
        except BaseException as error:  # a failed check or an error in the environment
            why = summary(error).rstrip(".")
            if "not within the observation space" in why:
                why += checked.shown()
            if "values to unpack" in why:
                why += (
                    " (step must return observation, reward, terminated, truncated and info; reset "
                    "must return observation and info)"
                )
            if "share an object" not in why:
                skip = "" if location(error) else ", or skip the check with --no-check-env"
                raise RunError(
                    f"environment {name!r} fails Gymnasium's checker: {why}. Fix it{skip}."
                ) from error
            # The checker's last test. All observations and infos are copied here.
            warnings.warn(
                "different calls return the same object in observations or infos, which other "
                "packages may not support: return copies",
                stacklevel=1,
            )
    messages = [_COLOURED.sub(r"\1", str(warning.message)) for warning in caught]
    for message in dict.fromkeys(messages):
        if not any(words in message for words in _HARMLESS):
            _log.warning(f"environment {name!r}: {message}")
    for deviation in checked.deviations.found.values():
        _log.warning(f"environment {name!r}: {deviation}")
    near = difflib.get_close_matches("action_mask", checked.keys, cutoff=0.75)
    if masks and checked.actions.choices and near and "action_mask" not in checked.keys:
        _log.warning(
            f"environment {name!r}: info contains {near[0]!r} but no 'action_mask': every choice "
            "is treated as valid"
        )
    if takes_seed(env) and not checked.seeds_generator:
        _log.warning(
            f"environment {name!r}: reset does not call super().reset(seed=seed): random "
            "numbers from self.np_random do not depend on the seed"
        )
    if repeats is None:
        repeats = repeats_itself(plays, name, laid_out, precision)
    if lost := precision.lost():
        _log.warning(f"environment {name!r}: {lost}")
    if seeds_hide_starts(plays, laid_out):
        _log.warning(
            f"environment {name!r}: reset returns the same observation for every seed, and others "
            "without a seed. In a run, every reset has a seed, so all episodes would start in the "
            "same state: draw the start from self.np_random after super().reset(seed=seed)"
        )
    carries, around = False, list(layers(env))
    for kind, meaning in _CARRIES.items():
        if any(isinstance(each, kind) and each.update_running_mean for each in around):
            carries = True
            _log.warning(
                f"environment {name!r}: each copy has its own {kind.__name__}, whose statistics "
                f"are not saved: {meaning}, and a resumed run starts with new ones"
            )
    if not (repeats or carries):
        _log.warning(
            f"environment {name!r} is not reproducible from its seed: runs may differ, and a "
            "resumed run starts a fresh episode if it cannot restore the previous one"
        )
    return repeats and not carries
