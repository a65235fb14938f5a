"""Exploration noise for actions, in NumPy because it is needed at every step.

Every random number depends only on the run's seed, the environment and the environment's step. It
does not depend on the process that draws it, on the group of environments, or on earlier draws.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eagerly.seeding import Stream, seed_sequence
from eagerly.spaces import Actions, Observations
from eagerly.spaces.actions import INVALID
from eagerly.state import Saved

EXPLORATIONS = ("gaussian", "ornstein_uhlenbeck", "held")
_LONGEST_HOLD = 16  # steps
_HOLD_WEIGHTS = 1.0 / np.arange(1, _LONGEST_HOLD + 1) ** 2
_HOLD_CUMULATED = np.cumsum(_HOLD_WEIGHTS) / _HOLD_WEIGHTS.sum()  # P(k ≤ 1), ..., P(k ≤ 16)
_LEAST = 2.0**-25  # lower bound of -log(1 - u), whose logarithm would be infinite at u = 0
_BLOCK = 256  # steps drawn at once, because creating a generator takes 30 µs


class Draws:
    """Random numbers for several environments.

    For a given seed and key, each number depends only on the environment and its step.

    Args:
        draw: Draws an array of a shape with a generator.
        seed: Seed of the run.
        stream: The random stream.
        *key: Further keys that identify these numbers.
        first: Index of the first environment in the run.
    """

    def __init__(
        self,
        draw: Callable[[np.random.Generator, tuple[int, int]], np.ndarray],
        seed: int,
        stream: Stream,
        *key: int,
        first: int,
    ) -> None:
        self._draw, self._seed, self._first = draw, seed, first
        self._stream, self._key = stream, key
        self._drawn, self._block = np.zeros((_BLOCK, 0, 0)), -1

    def __call__(self, step: int, shape: tuple[int, ...]) -> np.ndarray:
        """Returns W numbers for each of G environments, `[G, W]`, at a step; do not modify them."""
        block, place = divmod(step, _BLOCK)
        if block != self._block or self._drawn.shape[1:] != shape:
            count, width = shape
            each = [self._of(self._first + index, block, width) for index in range(count)]
            self._drawn, self._block = np.stack(each, axis=1), block
        row: np.ndarray = self._drawn[place]
        return row

    def _of(self, environment: int, block: int, width: int) -> np.ndarray:
        seeds = seed_sequence(self._seed, self._stream, *self._key, environment, block)
        return self._draw(np.random.Generator(np.random.PCG64(seeds)), (_BLOCK, width))


def _normal(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return generator.standard_normal(shape, np.float32)


def _uniform(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return generator.random(shape)


class Exploration(Saved):
    """Converts actor scores into exploratory actions, or draws random ones, step by step.

    Continuous dimensions of the G environments get Gaussian noise σ n with n ~ N(0, 1), independent
    for every environment and dimension:

    - "gaussian": independent at every step.
    - "ornstein_uhlenbeck": the process x ← (1 - θ) x + σ n (Uhlenbeck and Ornstein 1930). It starts
      at 0 in every episode, with time steps of 1 as in Lillicrap et al. 2016 (section 7). The
      standard deviation of x converges to σ / √(1 - (1 - θ)²), which is 1.9 σ for θ = 0.15.
    - "held": all dimensions of an environment keep their noise for k steps, at most until the end
      of the episode. P(k) is proportional to 1 / k² for k = 1, ..., 16 (Kim et al. 2026,
      "FlashSAC"), with a mean of 2.1.

    Discrete choices are sampled with their probabilities or, with probability ε, uniformly from the
    valid values.

    Args:
        kind: One of `EXPLORATIONS`.
        scale: σ, in units of [-1, 1].
        theta: θ in (0, 1]; with 1 the process is independent noise.
        epsilon: ε in [0, 1].
        observations: Layout of the observations, for their action masks.
        actions: Layout of the actions.
        seed: Seed of the run.
        first: Index of the first environment in the run.

    Attributes:
        step: Number of steps made by each environment.
        process: `[G, W]`, float32, the state of correlated noise; `[0, 0]` before the first step.
    """

    _saved = ("step", "process")

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
        self._scale, self._epsilon = np.float32(scale), epsilon
        self._kind, self._theta = kind, theta
        self.process = np.zeros((0, 0), np.float32)
        self._normals = Draws(_normal, seed, Stream.EXPLORATION, 0, first=first)
        self._holding = Draws(_uniform, seed, Stream.EXPLORATION, 2, first=first)
        self._choosing = Draws(_uniform, seed, Stream.EXPLORATION, 1, first=first)
        self._uniforms = Draws(_uniform, seed, Stream.WARMUP, first=first)
        self._observations, self._actions = observations, actions
        self.step = 0

    def explored(self, scores: np.ndarray) -> np.ndarray:
        """Maps scores `[G, A]`, float32, to actions `[G, A]` in [-1, 1]."""
        has_choices = bool(self._actions.choices)
        box = scores[:, : self._actions.continuous] if has_choices else scores
        noise = self._normals(self.step, box.shape) * self._scale
        if self._kind != "gaussian":
            noise = self._correlated(noise)
        noisy = box + noise
        np.maximum(noisy, -1.0, out=noisy)  # np.clip takes three times as long
        np.minimum(noisy, 1.0, out=noisy)
        return self._chosen(scores, noisy) if has_choices else noisy

    def _correlated(self, normal: np.ndarray) -> np.ndarray:
        """Returns noise `[G, W]` that depends on earlier noise and on independent noise."""
        count, width = normal.shape
        shape = (count, width + (self._kind == "held"))
        if self.process.shape != shape:
            self.process = np.zeros(shape, np.float32)
        if self._kind == "ornstein_uhlenbeck":
            self.process -= self._theta * self.process
            self.process += normal
            return self.process
        noise, left = self.process[:, :-1], self.process[:, -1:]  # left: steps left to hold it
        if (ends := left == 0).any():
            uniform = self._holding(self.step, (count, 1))
            steps = 1 + np.searchsorted(_HOLD_CUMULATED, uniform, side="right")
            np.copyto(left, steps, where=ends, casting="unsafe")
            np.copyto(noise, normal, where=ends)
        left -= 1
        return noise

    def _chosen(self, scores: np.ndarray, box: np.ndarray) -> np.ndarray:
        """Samples choices from scores `[G, A]`; appends them to continuous actions `[G, C]`."""
        first, mask_size = self._actions.continuous, self._actions.mask_size
        width = mask_size + len(self._actions.choices)
        uniform = self._choosing(self.step, (len(scores), width))
        gumbel = -np.log(np.maximum(-np.log1p(-uniform), _LEAST))
        noisy = np.concatenate([box, scores[:, first:]], axis=1)
        for index, segment in enumerate(self._actions.segments()):
            columns = noisy[:, segment]
            noise = gumbel[:, segment.start - first : segment.stop - first]
            valid = scores[:, segment] > INVALID / 2
            uniformly = uniform[:, mask_size + index, np.newaxis] < self._epsilon
            columns[:] = np.where(valid, np.where(uniformly, noise, columns + noise), INVALID)
        return self._actions.decided(noisy)

    def random(self, observations: np.ndarray) -> np.ndarray:
        """Returns uniformly random actions `[G, A]`, valid for the observations `[G, O]`."""
        uniforms = self._uniforms(self.step, (len(observations), self._actions.size))
        return self._actions.of_uniforms(uniforms, self._observations.mask_of(observations))

    def stepped(self, ended: np.ndarray) -> None:
        """Advances to the next step and resets the noise of episodes that ended, `[G]` bool."""
        self.step += 1
        if ended.any():
            self.on_reset(ended)

    def on_reset(self, began: np.ndarray) -> None:
        """Resets the noise of environments in which an episode begins; `began` is `[G]` bool."""
        if len(began) == len(self.process):
            self.process[began] = 0.0

    def _check(self, values: dict[str, Any]) -> None:
        if values["process"].ndim != 2:
            raise ValueError(f"noise must have shape [G, W]; got {values['process'].shape}")
        if self._kind == "gaussian":  # the state may come from another kind of noise
            values["process"] = np.zeros((0, 0), np.float32)
