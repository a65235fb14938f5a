"""Exploration noise for actions; in NumPy, because it is needed at every step."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerly.spaces import Actions
from eagerly.spaces.actions import INVALID

EXPLORATIONS = ("gaussian", "ornstein_uhlenbeck")
_LEAST = 2.0**-25  # below the distance of the uniforms to 1, so that no logarithm is of 0


class GaussianNoise:
    """Independent normal noise for every environment, step and dimension.

    Args:
        scale: Standard deviation, in units of [-1, 1].
        seed: Its seed.
    """

    def __init__(self, scale: float, seed: np.random.SeedSequence) -> None:
        self._scale = scale
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def __call__(self, actions: np.ndarray) -> np.ndarray:
        """Adds noise to actions `[N, A]` and keeps them in [-1, 1]."""
        noisy = actions + self._noise(actions.shape)
        np.maximum(noisy, -1.0, out=noisy)  # np.clip takes three times as long
        return np.minimum(noisy, 1.0, out=noisy)

    def _noise(self, shape: tuple[int, ...]) -> np.ndarray:
        noise = self._generator.standard_normal(shape, np.float32)
        noise *= self._scale
        return noise

    def begin_episodes(self, began: np.ndarray) -> None:
        """Takes which environments `[N]` begin an episode; this noise does not depend on it."""

    def state(self) -> dict[str, Any]:
        """Returns what `restore` needs, plain numbers that JSON can hold."""
        return dict(self._generator.bit_generator.state)

    def restore(self, state: dict[str, Any]) -> None:
        """Continues from `state`."""
        self._generator.bit_generator.state = state


class OrnsteinUhlenbeckNoise(GaussianNoise):
    """Noise that is correlated in time, one process for every environment and dimension.

    x ← (1 - θ) x + σ n with n ~ N(0, 1), starting at 0 in every episode. This is the process of
    Uhlenbeck and Ornstein 1930 with time steps of 1, as in Lillicrap et al. 2016 (section 7). Its
    standard deviation converges to σ / √(1 - (1 - θ)²), which is 1.9 σ for θ = 0.15.

    Args:
        scale: σ, in units of [-1, 1].
        theta: θ in (0, 1]; 1 gives `GaussianNoise`.
        seed: Its seed.
    """

    def __init__(self, scale: float, theta: float, seed: np.random.SeedSequence) -> None:
        super().__init__(scale, seed)
        self._theta = theta
        self._current = np.zeros((0, 0), np.float32)

    def _noise(self, shape: tuple[int, ...]) -> np.ndarray:
        if self._current.shape != shape:
            self._current = np.zeros(shape, np.float32)
        self._current -= self._theta * self._current
        self._current += super()._noise(shape)
        return self._current

    def begin_episodes(self, began: np.ndarray) -> None:
        """Resets the processes of the environments `[N]` that begin an episode to 0."""
        if len(began) == len(self._current):
            self._current[began] = 0.0

    def state(self) -> dict[str, Any]:
        """Returns what `restore` needs, plain numbers that JSON can hold."""
        return super().state() | {"current": self._current.tolist()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continues from `state`; after that of another kind of noise, processes start at 0."""
        super().restore(state)
        self._current = np.array(state.get("current", np.zeros((0, 0))), np.float32)


def exploration_noise(
    kind: str, scale: float, theta: float, seed: np.random.SeedSequence
) -> GaussianNoise:
    """Creates noise by its name, one of `EXPLORATIONS`."""
    if kind == "gaussian":
        return GaussianNoise(scale, seed)
    return OrnsteinUhlenbeckNoise(scale, theta, seed)


class ChoiceNoise(GaussianNoise):
    """Exploration for discrete choices: samples by their probabilities, sometimes uniformly.

    Args:
        box: The noise of continuous dimensions.
        actions: How actions are laid out.
        epsilon: Share of choices that are sampled uniformly from the valid values.
        seed: Seed of the choices.
    """

    def __init__(
        self, box: GaussianNoise, actions: Actions, epsilon: float, seed: np.random.SeedSequence
    ) -> None:
        super().__init__(0.0, seed)
        self._box, self._actions, self._epsilon = box, actions, epsilon

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        """Maps scores `[N, A]` to actions `[N, A]`."""
        noisy = scores.astype(np.float32)
        first, draw = self._actions.continuous, self._generator
        if first:
            noisy[:, :first] = self._box(noisy[:, :first])
        uniform = draw.random((len(scores), self._actions.mask_size + len(self._actions.choices)))
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

    def state(self) -> dict[str, Any]:
        """Returns what `restore` needs, plain numbers that JSON can hold."""
        return {"choices": super().state(), "box": self._box.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continues from `state`."""
        super().restore(state["choices"])
        self._box.restore(state["box"])
