"""Observations scaled by their running mean and deviation."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

from eagerly.networks.moments import RunningMoments
from eagerly.policies.numpy_actor import CLIP


class ObservationNormalization(keras.layers.Layer):
    """Maps observations o to (o - mean) / deviation, cut off at ±10 deviations.

    Mean and deviation are those of all observations that `observe` was told of. What the networks
    use changes with `sync` alone: acting, evaluation and training see the same numbers until
    then. One such layer serves actor, critics and targets.

    Args:
        size: O, the length of an observation.
        scalable: Which of its columns are scaled, `[O]` bool; None: all of them.
        dtype: Dtype of the networks' variables.

    Attributes:
        moments: What was observed.
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
        self.moments = RunningMoments("observations", size)

    def call(self, observations: tf.Tensor) -> tf.Tensor:
        """Maps `[..., O]` to `[..., O]`."""
        given = tf.cast(observations, self.variable_dtype)
        scaled = tf.clip_by_value((given - self.mean) * self.scale, -CLIP, CLIP)
        # Pixels, zeros and ones have no deviations to be cut off at.
        return scaled if self._scalable.all() else tf.where(self._scalable, scaled, given)

    @property
    def count(self) -> int:
        """How many observations it was told of."""
        return self.moments.count

    def update(self, observations: np.ndarray) -> None:
        """Counts observations `[N, O]`.

        Raises:
            ValueError: If they have another shape; nothing is counted then.
            FloatingPointError: If one is not finite.
        """
        self.moments.update(observations)

    def sync(self) -> None:
        """Lets the networks use what was observed so far; nothing happens before two are."""
        if self.count > 1:
            self.mean.assign(np.where(self._scalable, self.moments.mean, 0.0))
            # What is constant is only shifted.
            self.scale.assign(self.moments.inverse_deviation(self._scalable))
