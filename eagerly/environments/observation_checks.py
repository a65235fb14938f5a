"""Checks of observations: bounds, float32 precision, reproducibility and the effect of seeds."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from eagerly.errors import RunError
from eagerly.spaces import Observations, first_not_finite
from eagerly.spaces.description import below, first_outside, index_text
from eagerly.spaces.observations import VECTOR

_LONGEST = 10  # maximum number of steps compared per episode
_SMALLEST = 1e-6  # smaller changes count as numerical noise


class Deviations:
    """Collects deviations of observations from their space that do not affect training.

    These are numbers outside the bounds of a `Box`, which are only documentation, and dtypes that
    can be cast to the dtype of the space.

    Attributes:
        found: A description of the first deviation of each kind in each entry.
    """

    def __init__(self) -> None:
        self.found: dict[tuple[str, str], str] = {}

    def corrected(self, space: gymnasium.Space[Any], value: Any, path: str = "") -> Any:
        """Records the deviations of an observation, and returns a valid observation.

        Values that are invalid in other ways are returned unchanged.
        """
        if isinstance(space, spaces.Dict) and isinstance(value, dict):
            inner = {**value}
            for key in inner.keys() & space.spaces.keys():
                inner[key] = self.corrected(space[key], inner[key], below(path, key))
            return inner
        if isinstance(space, spaces.Tuple) and isinstance(value, tuple):
            parts = zip(space.spaces, value, strict=False)
            known = [self.corrected(*pair, below(path, key)) for key, pair in enumerate(parts)]
            return (*known, *value[len(known) :])
        if not isinstance(space, spaces.Box) or not isinstance(value, np.ndarray):
            return value
        casts = np.can_cast(value.dtype, space.dtype, "same_kind")
        if value.shape != space.shape or not casts or not np.isfinite(value).all():
            return value
        entry = f"entry {path!r} of an observation" if path else "an observation"
        if not np.can_cast(value.dtype, space.dtype):
            self.found.setdefault(
                (path, "dtype"),
                f"{entry} had dtype {value.dtype}, but its space has {space.dtype}: it is cast",
            )
        if value.dtype.kind == "f":  # in a smaller float dtype, bounds are rounded, too
            value = value.astype(space.dtype, copy=False)
        if (outside := first_outside(space, value)) is not None:
            self.found.setdefault(
                (path, "bounds"),
                f"{entry} does not fit its Box: {outside}. Training ignores the bounds of "
                "observations; correct them in observation_space",
            )
            value = np.clip(value, space.low, space.high)
        return value.astype(space.dtype, copy=False)


class Precision:
    """Finds numbers whose changes are lost because observations are stored in float32.

    Args:
        observations: Observation layout.
    """

    def __init__(self, observations: Observations) -> None:
        self._observations = observations
        self._last: dict[str, np.ndarray] = {}
        self._largest: dict[str, np.ndarray] = {}

    def observe(self, observation: Any) -> None:
        """Records the next observation, in the environment's own dtypes."""
        parts = self._observations.parts(observation)
        for entry, part in zip(self._observations.entries, parts, strict=True):
            value = np.asarray(part)
            if entry.kind != VECTOR or np.can_cast(value.dtype, np.float32):
                continue
            now = value.astype(np.float64)
            with np.errstate(invalid="ignore"):  # infinite values are reported elsewhere
                change = np.abs(now - self._last.get(entry.path, now))
            self._largest[entry.path] = np.maximum(change, self._largest.get(entry.path, 0.0))
            self._last[entry.path] = now

    def lost(self) -> str | None:
        """Describes the first number whose largest change is below float32 resolution, if any."""
        for path, largest in self._largest.items():
            values = self._last[path]
            with np.errstate(over="ignore", invalid="ignore"):
                spacing = np.spacing(np.abs(values).astype(np.float32))
            lost = np.argwhere((largest >= _SMALLEST) & (largest < spacing))
            if len(lost):
                at = tuple(lost[0])
                entry = f"entry {path!r} of the observation" if path else "the observation"
                return (
                    f"in {entry}, {index_text(at)} is {float(values[at])!r} and changes by at most "
                    f"{largest[at]:g} between observations. Observations are stored in float32, "
                    f"whose resolution there is {spacing[at]:g}: subtract a constant from the value"
                )
        return None


def repeats_itself(
    env: gymnasium.Env[Any, Any], name: str, observations: Observations, precision: Precision
) -> bool:
    """Returns whether two short episodes with the same seed are equal.

    Args:
        env: The environment, which selects actions itself and ignores those that it is given.
        name: Name used in messages.
        observations: Observation layout.
        precision: Records the observations.

    Raises:
        RunError: If an observation is NaN or infinite.
    """
    # The episode in between reveals state that carries over to the next one.
    first, _, last = (_episode(env, name, observations, precision, seed) for seed in (0, 1, 0))
    return len(first) == len(last) and all(map(np.array_equal, first, last))


def _episode(
    env: gymnasium.Env[Any, Any],
    name: str,
    observations: Observations,
    precision: Precision,
    seed: int,
) -> list[np.ndarray]:
    """Returns the observations and rewards of the first steps of an episode."""

    def row(step: int, observation: Any) -> np.ndarray:
        if found := first_not_finite(observations.kept(observation)):
            raise RunError(
                f"environment {name!r}, step {step} of an episode: observation must be finite in "
                f"float32; got {found}"
            )
        precision.observe(observation)
        return observations.flatten(observation)

    seen = [row(0, env.reset(seed=seed)[0])]
    for step in range(1, _LONGEST + 1):
        observation, reward, terminated, truncated, _ = env.step(None)
        seen += [row(step, observation), np.array(reward)]
        if terminated or truncated:
            break
    return seen


def seeds_hide_starts(env: gymnasium.Env[Any, Any], observations: Observations) -> bool:
    """Returns whether resets return one observation with any seed, but others without a seed."""

    def starts(*seeds: int | None) -> set[bytes]:
        return {observations.flatten(env.reset(seed=seed)[0]).tobytes() for seed in seeds}

    start = starts(0, 1)
    if len(start) > 1 or starts(None, None, None) <= start:
        return False
    return starts(*range(2, 20)) == start  # starts may be few, and equal by chance
