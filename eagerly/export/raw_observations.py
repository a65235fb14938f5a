"""Finds the wrappers of a run whose preprocessing the exported runner repeats.

The runner repeats stacked frames, grayscale and resized images, from the outermost wrapper inward,
up to the first wrapper that may change observations in another way. Observations inside the last
repeated wrapper are called raw: they are what a robot passes to the runner.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np

from eagerly.environments.adapting import layers
from eagerly.environments.factory import EnvironmentMaker
from eagerly.environments.named_wrappers import WRAPPER_FORM, NamedWrapper
from eagerly.importing import FACTORY, split_call

# Wrappers that act only on actions and rewards. `DelayObservation` does not belong here: the steps
# inside it would pad their first observations differently.
_PASSED = {
    "eagerly.wrappers:DelayAction",
    "eagerly.wrappers:RateLimit",
    "eagerly.wrappers:SmoothnessCost",
    "gymnasium.wrappers:ClipAction",
    "gymnasium.wrappers:ClipReward",
    "gymnasium.wrappers:RescaleAction",
    "gymnasium.wrappers:StickyAction",
    "gymnasium.wrappers:TimeLimit",
}


class RawObservations(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Keeps a copy of the last raw observation, as `last`."""

    def observation(self, observation: Any) -> Any:
        """Returns the observation unchanged."""
        self.last = np.array(observation)
        return observation

    @property
    def size(self) -> int:
        """The size of a raw observation in bytes."""
        space: Any = self.observation_space
        return math.prod(space.shape) * space.dtype.itemsize

    @classmethod
    def of(cls, env: gymnasium.Env[Any, Any]) -> RawObservations | None:
        """Returns the layer of an environment that `Repeated.recorded` inserted, if any."""
        return next((layer for layer in layers(env) if isinstance(layer, cls)), None)


@dataclass(frozen=True)
class Repeated:
    """The preprocessing that the runner repeats.

    Attributes:
        steps: Its steps, the innermost first, for `Preprocessing`.
        indices: The indices of their wrappers.
    """

    steps: tuple[dict[str, Any], ...] = ()
    indices: tuple[int, ...] = ()

    def recorded(self, make: EnvironmentMaker) -> EnvironmentMaker:
        """Returns a factory of the same environments, with a layer of `RawObservations`."""
        if not self.steps:
            return make
        layer = NamedWrapper("raw observations", RawObservations, {}, "")
        first, wrappers = self.indices[0], make.wrappers
        return replace(make, wrappers=(*wrappers[:first], layer, *wrappers[first:]))

    def raw(self, make: EnvironmentMaker) -> EnvironmentMaker:
        """Returns a factory of environments without this preprocessing."""
        kept = [each for i, each in enumerate(make.wrappers) if i not in self.indices]
        return replace(make, wrappers=tuple(kept))


def repeated(wrappers: Sequence[str], space: gymnasium.Space[Any]) -> Repeated:
    """Returns the preprocessing that the runner repeats.

    Args:
        wrappers: The setting `wrapper` of the run, as saved.
        space: The observation space of the policy. Only a `Box` is supported.
    """
    steps: list[dict[str, Any]] = []
    indices: list[int] = []
    if not isinstance(space, gymnasium.spaces.Box):
        return Repeated()
    # Gymnasium pads with the value closest to 0 within the bounds, the runner only with 0.
    has_zero = bool(np.all((space.low <= 0) & (space.high >= 0)))
    paddings = ("reset", "zero") if has_zero else ("reset",)
    for index, text in reversed(list(enumerate(wrappers))):
        if text.startswith(FACTORY):
            break
        module, attribute, given = split_call(text, "wrapper", WRAPPER_FORM)
        name = f"{module}:{attribute}"
        if (step := _step(name, given, paddings)) is not None:
            steps.insert(0, step)
            indices.insert(0, index)
        elif name not in _PASSED:
            break
    return Repeated(tuple(steps), tuple(indices))


def _step(name: str, given: dict[str, Any], paddings: tuple[str, ...]) -> dict[str, Any] | None:
    """Returns the preprocessing step of a wrapper; None if the runner cannot repeat it."""
    if name == "gymnasium.wrappers:GrayscaleObservation":
        return {"kind": "grayscale", "keep_dim": bool(given.get("keep_dim", False))}
    if name == "eagerly.wrappers:Resize":
        return {"kind": "resize", **given}
    padding = given.get("padding_type", "reset")
    if name == "gymnasium.wrappers:FrameStackObservation" and padding in paddings:
        return {"kind": "stack", "size": given.get("stack_size"), "padding": padding}
    return None
