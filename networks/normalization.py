"""Normalization of observations by their running mean and standard deviation."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

from eagerly.networks.moments import RunningMoments
from eagerly.policies.numpy_actor import CLIP


class ObservationNormalization(keras.layers.Layer):
    """Maps observations o to (o - mean) / standard deviation, clipped to ±10.

    Mean and standard deviation are those of all observations passed to `update`. The networks only
    see changes after `sync`, so acting, evaluation and training use the same values in between.
    Actor, critics and target networks share one such layer.

    Args:
        size: O, the length of an observation.
        scalable: `[O]` bool, the columns to normalize; None: all.
        dtype: Dtype of the networks' variables.

    Attributes:
        moments: Moments of all observations so far.
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
        # Pixels and binary columns are not clipped.
        return scaled if self._scalable.all() else tf.where(self._scalable, scaled, given)

    @property
    def count(self) -> int:
        """Number of observations so far."""
        return self.moments.count

    def update(self, observations: np.ndarray) -> None:
        """Adds observations `[N, O]` to the moments. If an error is raised, nothing changes.

        Raises:
            ValueError: If the shape is wrong.
            FloatingPointError: If a value is not finite.
        """
        self.moments.update(observations)

    def sync(self) -> None:
        """Updates the networks' values from the moments, once there are two observations."""
        if self.count > 1:
            self.mean.assign(np.where(self._scalable, self.moments.mean, 0.0))
            # Constant columns are only shifted.
            self.scale.assign(self.moments.inverse_deviation(self._scalable))
