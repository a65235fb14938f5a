"""Exploration noise for actions; in NumPy, because it is needed at every step.

Every number is a function of the run's seed, of its environment and of that environment's step. So
neither who draws it, nor with which others, nor how often changes a bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from eagerly.seeding import Stream, seed_sequence
from eagerly.spaces import Actions, Observations
from eagerly.spaces.actions import INVALID

EXPLORATIONS = ("gaussian", "ornstein_uhlenbeck")
_LEAST = 2.0**-25  # below the distance of the uniforms to 1, so that no logarithm is of 0
_BLOCK = 256  # steps that are drawn at a time: a generator takes 30 µs to begin


class Draws:
    """Random numbers of some environments, of each by its number and step alone.

    Args:
        draw: Draws an array of a shape with a generator.
        seed: Seed of the run.
        key: The stream, and what else tells these numbers from others.
        first: Number of the first environment.
    """

    def __init__(
        self,
        draw: Callable[[np.random.Generator, tuple[int, int]], np.ndarray],
        seed: int,
        *key: int,
        first: int = 0,
    ) -> None:
        self._draw, self._seed, self._key, self._first = draw, seed, key, first
        self._drawn, self._block = np.zeros((_BLOCK, 0, 0)), -1

    def __call__(self, step: int, shape: tuple[int, ...]) -> np.ndarray:
        """Returns the numbers of a step, for G environments W each, `[G, W]`; not to be changed."""
        block, place = divmod(step, _BLOCK)
        if block != self._block or self._drawn.shape[1:] != shape:
            count, width = shape
            each = [self._of(self._first + index, block, width) for index in range(count)]
            self._drawn, self._block = np.stack(each, axis=1), block
        row: np.ndarray = self._drawn[place]
        return row

    def _of(self, environment: int, block: int, width: int) -> np.ndarray:
        stream, *key = self._key
        seeds = seed_sequence(self._seed, Stream(stream), *key, environment, block)
        return self._draw(np.random.Generator(np.random.PCG64(seeds)), (_BLOCK, width))


def _normal(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return generator.standard_normal(shape, np.float32)


def _uniform(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return generator.random(shape)


class Noise(Protocol):
    """Makes of what an actor computes what is done, step by step."""

    def __call__(self, scores: np.ndarray, step: int, /) -> np.ndarray:
        """Maps scores `[G, A]` to actions `[G, A]` in [-1, 1]."""

    def begin_episodes(self, began: np.ndarray) -> None:
        """Takes which environments `[G]` begin an episode."""

    def state(self) -> list[list[float]]:
        """Returns what the next numbers depend on besides their step, as JSON can hold it."""

    def restore(self, state: list[list[float]]) -> None:
        """Continues from `state`."""


class GaussianNoise:
    """Independent normal noise for every environment, step and dimension.

    Args:
        scale: Standard deviation, in units of [-1, 1].
        seed: Seed of the run.
        first: Number of the first environment.
    """

    def __init__(self, scale: float, seed: int, *, first: int = 0) -> None:
        self._scale = np.float32(scale)
        self._normals = Draws(_normal, seed, Stream.EXPLORATION, 0, first=first)

    def __call__(self, actions: np.ndarray, step: int) -> np.ndarray:
        """Adds the noise of a step to actions `[G, A]` and keeps them in [-1, 1]."""
        noisy = actions + self._normals(step, actions.shape) * self._scale
        np.maximum(noisy, -1.0, out=noisy)  # np.clip takes three times as long
        return np.minimum(noisy, 1.0, out=noisy)

    def begin_episodes(self, began: np.ndarray) -> None:
        """Takes which environments `[G]` begin an episode; this noise does not depend on it."""

    def state(self) -> list[list[float]]:
        """Returns what the next numbers depend on besides their step: here nothing."""
        return []

    def restore(self, state: list[list[float]]) -> None:
        """Continues from `state`."""


class OrnsteinUhlenbeckNoise(GaussianNoise):
    """Noise that is correlated in time, one process for every environment and dimension.

    x ← (1 - θ) x + σ n with n ~ N(0, 1), starting at 0 in every episode. This is the process of
    Uhlenbeck and Ornstein 1930 with time steps of 1, as in Lillicrap et al. 2016 (section 7). Its
    standard deviation converges to σ / √(1 - (1 - θ)²), which is 1.9 σ for θ = 0.15.

    Args:
        scale: σ, in units of [-1, 1].
        theta: θ in (0, 1]; 1 gives `GaussianNoise`.
        seed: Seed of the run.
        first: Number of the first environment.
    """

    def __init__(self, scale: float, theta: float, seed: int, *, first: int = 0) -> None:
        super().__init__(scale, seed, first=first)
        self._theta = theta
        self._current = np.zeros((0, 0), np.float32)

    def __call__(self, actions: np.ndarray, step: int) -> np.ndarray:
        """Adds the noise of a step to actions `[G, A]` and keeps them in [-1, 1]."""
        if self._current.shape != actions.shape:
            self._current = np.zeros(actions.shape, np.float32)
        self._current -= self._theta * self._current
        self._current += self._normals(step, actions.shape) * self._scale
        noisy = actions + self._current
        return np.minimum(np.maximum(noisy, -1.0, out=noisy), 1.0, out=noisy)

    def begin_episodes(self, began: np.ndarray) -> None:
        """Resets the processes of the environments `[G]` that begin an episode to 0."""
        if len(began) == len(self._current):
            self._current[began] = 0.0

    def state(self) -> list[list[float]]:
        """Returns where the processes are, `[G, A]`."""
        current: list[list[float]] = self._current.tolist()
        return current

    def restore(self, state: list[list[float]]) -> None:
        """Continues from `state`; after that of another kind of noise, processes start at 0."""
        self._current = np.array(state, np.float32) if state else np.zeros((0, 0), np.float32)


class ChoiceNoise:
    """Exploration for discrete choices: samples by their probabilities, sometimes uniformly.

    Args:
        box: The noise of continuous dimensions.
        actions: How actions are laid out.
        epsilon: Share of choices that are sampled uniformly from the valid values.
        seed: Seed of the run.
        first: Number of the first environment.
    """

    def __init__(
        self, box: Noise, actions: Actions, epsilon: float, seed: int, *, first: int = 0
    ) -> None:
        self._box, self._actions, self._epsilon = box, actions, epsilon
        self._uniforms = Draws(_uniform, seed, Stream.EXPLORATION, 1, first=first)

    def __call__(self, scores: np.ndarray, step: int) -> np.ndarray:
        """Maps scores `[G, A]` to actions `[G, A]`."""
        noisy = scores.astype(np.float32)
        first, choices = self._actions.continuous, self._actions.choices
        if first:
            noisy[:, :first] = self._box(noisy[:, :first], step)
        uniform = self._uniforms(step, (len(scores), self._actions.mask_size + len(choices)))
        gumbel = -np.log(np.maximum(-np.log1p(-uniform), _LEAST))
        for index, segment in enumerate(self._actions.segments()):
            columns = noisy[:, segment]
            own = gumbel[:, segment.start - first : segment.stop - first]
            valid = scores[:, segment] > INVALID / 2
            uniformly = uniform[:, self._actions.mask_size + index, np.newaxis] < self._epsilon
            columns[:] = np.where(valid, np.where(uniformly, own, columns + own), INVALID)
        return self._actions.decided(noisy)

    def begin_episodes(self, began: np.ndarray) -> None:
        """Tells the noise of continuous dimensions which environments begin an episode."""
        self._box.begin_episodes(began)

    def state(self) -> list[list[float]]:
        """Returns the state of the noise of continuous dimensions."""
        return self._box.state()

    def restore(self, state: list[list[float]]) -> None:
        """Continues from `state`."""
        self._box.restore(state)


class Exploration:
    """Makes actions of what an actor computes, or none of it, for G environments, step by step.

    Args:
        kind: One of `EXPLORATIONS`.
        scale, theta: Of the noise, see `GaussianNoise` and `OrnsteinUhlenbeckNoise`.
        epsilon: Of discrete choices, see `ChoiceNoise`.
        observations: How observations are laid out as rows, for the masks in them.
        actions: How actions are laid out.
        seed: Seed of the run.
        first: Number of the first environment.

    Attributes:
        step: Steps that each environment has made.
    """

    def __init__(
        self,
        kind: str,
        scale: float,
        theta: float,
        epsilon: float,
        observations: Observations,
        actions: Actions,
        *,
        seed: int,
        first: int = 0,
    ) -> None:
        self.noise: Noise = GaussianNoise(scale, seed, first=first)
        if kind == "ornstein_uhlenbeck":
            self.noise = OrnsteinUhlenbeckNoise(scale, theta, seed, first=first)
        if actions.choices:
            self.noise = ChoiceNoise(self.noise, actions, epsilon, seed, first=first)
        self._uniforms = Draws(_uniform, seed, Stream.WARMUP, first=first)
        self._observations, self._actions = observations, actions
        self.step = 0

    def random(self, observations: np.ndarray) -> np.ndarray:
        """Returns uniformly random actions `[G, A]`, valid where observations `[G, O]` say so."""
        uniforms = self._uniforms(self.step, (len(observations), self._actions.size))
        return self._actions.of_uniforms(uniforms, self._observations.mask_of(observations))

    def stepped(self, ended: np.ndarray) -> None:
        """Goes on to the next step; `[G]` bool says which episodes ended."""
        self.step += 1
        if ended.any():
            self.noise.begin_episodes(ended)

    def state(self) -> dict[str, Any]:
        """Returns the step, and the state of correlated noise: plain numbers for JSON."""
        return {"step": self.step, "noise": self.noise.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from `state`.

        Raises:
            ValueError: If it is not the state of exploration.
        """
        if (step := int(state["step"])) < 0:
            raise ValueError(f"the step of exploration must be at least 0; got {step}")
        self.step = step
        self.noise.restore(state["noise"])
