"""Observations scaled by their running mean and deviation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from eagerly.policies.numpy_actor import CLIP

# A dimension whose deviation is a smaller part of its mean is constant, as far as float32 can say.
_CONSTANT = 1e-6


class ObservationNormalization(keras.layers.Layer):
    """Maps observations o to (o - mean) / deviation, cut off at ±10 deviations.

    Mean and deviation are those of all observations that `observe` was told of. What the networks
    use changes with `publish` alone: acting, evaluation and training see the same numbers until
    then. One such layer serves actor, critics and targets.

    Args:
        size: O, the length of an observation.
        scalable: Which of its columns are scaled, `[O]` bool; None: all of them.
        dtype: Dtype of the networks' variables.

    Attributes:
        count: How many observations it was told of.
    """

    def __init__(
        self, size: int, *, scalable: np.ndarray | None = None, dtype: str = "float32"
    ) -> None:
        super().__init__(name="observation_normalization", dtype=dtype, autocast=False)
        self.mean = self.add_weight(
            name="mean", shape=(size,), initializer="zeros", trainable=False
        )
        self.scale = self.add_weight(
            name="scale", shape=(size,), initializer="ones", trainable=False
        )
        self.built = True
        self._scalable = np.ones(size, bool) if scalable is None else scalable
        self.count = 0
        # In float64: a million additions to a float32 lose more than they add.
        self._mean, self._squares = np.zeros(size), np.zeros(size)

    def call(self, observations: tf.Tensor) -> tf.Tensor:
        """Maps `[..., O]` to `[..., O]`."""
        given = tf.cast(observations, self.variable_dtype)
        scaled = tf.clip_by_value((given - self.mean) * self.scale, -CLIP, CLIP)
        # Pixels, zeros and ones have no deviations to be cut off at.
        return scaled if self._scalable.all() else tf.where(self._scalable, scaled, given)

    def observe(self, observations: np.ndarray) -> None:
        """Counts observations `[N, O]`, by the pairwise update of Chan, Golub and LeVeque 1983.

        Raises:
            ValueError: If they have another shape; nothing is counted then.
            FloatingPointError: If one is not finite: it would stay for ever.
        """
        new = np.asarray(observations, np.float64)
        if new.ndim != 2 or not len(new) or new.shape[1:] != self._mean.shape:
            raise ValueError(
                f"observations must have shape [N, {len(self._mean)}], got {new.shape}: pass one "
                "observation as observation[np.newaxis]"
            )
        if not math.isfinite(new.sum()):
            raise FloatingPointError(f"observations must be finite; got {observations}")
        count = len(new)
        mean = new.mean(axis=0)
        away = mean - self._mean
        total = self.count + count
        self._squares += np.square(new - mean).sum(axis=0)
        self._squares += np.square(away) * (self.count * count / total)
        self._mean += away * (count / total)
        self.count = total

    def publish(self) -> None:
        """Lets the networks use what was observed so far; nothing happens before two are."""
        if self.count > 1:
            variance = self._squares / self.count
            moves = (np.sqrt(variance) > _CONSTANT * np.abs(self._mean)) & self._scalable
            scale = np.where(moves, variance, 1.0) ** -0.5  # what is constant is only shifted
            self.mean.assign(np.where(self._scalable, self._mean, 0.0))
            self.scale.assign(scale)

    def state(self) -> dict[str, Any]:
        """Returns what was observed, as JSON; floats come back exactly."""
        return {
            "count": self.count,
            "mean": self._mean.tolist(),
            "squares": self._squares.tolist(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state` returned.

        Raises:
            ValueError: If it is of other observations, not finite, or no numbers.
        """
        try:
            mean, squares = (np.array(state[name], np.float64) for name in ("mean", "squares"))
            count = int(state["count"])
        except TypeError as error:
            raise ValueError(f"statistics of observations must be numbers: {error}") from error
        if mean.shape != self._mean.shape or squares.shape != mean.shape:
            raise ValueError(
                f"statistics of observations must have shape {self._mean.shape}; got {mean.shape}"
            )
        if not (np.isfinite(mean).all() and np.isfinite(squares).all() and squares.min() >= 0):
            raise ValueError("statistics of observations must be finite, and squares at least 0")
        if count < 0:
            raise ValueError(f"count of observations must be at least 0; got {count}")
        self.count, self._mean, self._squares = count, mean, squares
