"""Normalization layers: of observations, and of the units of batched ensembles."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from eagerly.networks.moments import RunningMoments
from eagerly.policies.numpy_actor import CLIP
from eagerly.policies.operations import LAYER_NORM_EPSILON


class ObservationNormalization(keras.layers.Layer):
    """Maps observations o to (o - mean) / max(standard deviation, floor), clipped to ±10.

    Mean and standard deviation are those of all observations passed to `update`. The networks use
    new values only after `sync`, so acting, evaluation and training use the same values until then.
    Actor, critics and target networks share one such layer, or the actor has another one with the
    same moments; see `LastColumns`.

    Args:
        size: O, the length of an observation.
        scalable: `[O]` bool, the columns to normalize; all if None.
        dtype: Dtype of the networks' variables.
        floor: The floor, at least 0.
        moments: Moments of longer observations, which end with these O columns; if None, the layer
            has separate moments.

    Attributes:
        moments: Moments of all observations so far.
    """

    def __init__(
        self,
        size: int,
        *,
        scalable: np.ndarray | None = None,
        dtype: str = "float32",
        floor: float = 0.0,
        moments: RunningMoments | None = None,
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
        self._floor = floor
        self.moments = moments or RunningMoments("observations", size)

    def call(self, observations: tf.Tensor) -> tf.Tensor:
        """Maps `[..., O]` to `[..., O]`."""
        given = tf.cast(observations, self.variable_dtype)
        scaled = tf.clip_by_value((given - self.mean) * self.scale, -CLIP, CLIP)
        # Pixels and binary columns are not clipped.
        return scaled if self._scalable.all() else tf.where(self._scalable, scaled, given)

    def update(self, observations: np.ndarray) -> None:
        """Adds observations `[N, O]` to the moments. If an error is raised, nothing changes.

        Raises:
            ValueError: If the shape is wrong.
            FloatingPointError: If a value is not finite.
        """
        self.moments.update(observations)

    def sync(self) -> None:
        """Sets the mean and scale that networks use from the moments of at least 2 observations."""
        with self.moments.lock:
            if self.moments.count > 1:
                last = slice(-len(self._scalable), None)
                self.mean.assign(np.where(self._scalable, self.moments.mean[last], 0.0))
                # Constant columns are shifted but not scaled.
                scale = self.moments.inverse_deviation(self._floor)[last]
                self.scale.assign(np.where(self._scalable, scale, 1.0))

    def of_last(self, size: int) -> ObservationNormalization:
        """Returns a layer that normalizes only the last columns, `[..., size]`."""
        return ObservationNormalization(
            size,
            scalable=self._scalable[-size:],
            dtype=self.variable_dtype,
            floor=self._floor,
            moments=self.moments,
        )


class LastColumns(keras.layers.Layer):
    """Maps observations to their last columns, which the actor sees, and normalizes these.

    Columns that only critics see come first. Observations without them are also accepted.

    Args:
        size: The number of columns that the actor sees.
        normalization: Normalizes whole observations; None if they are not normalized.
        dtype: Dtype of the networks' variables.

    Attributes:
        normalization: Normalizes the columns that the actor sees, or None.
    """

    def __init__(
        self, size: int, normalization: ObservationNormalization | None, dtype: str
    ) -> None:
        super().__init__(name="last_columns", dtype=dtype, autocast=False)
        self._size = size
        self.normalization = None if normalization is None else normalization.of_last(size)
        self.built = True

    def call(self, observations: tf.Tensor) -> tf.Tensor:
        """Maps `[..., O]` to `[..., size]`."""
        seen = observations[..., -self._size :]
        return seen if self.normalization is None else self.normalization(seen)


def is_normalization(layer: Any) -> bool:
    """Returns whether the layer that a network applies to observations normalizes them."""
    return layer is not None and getattr(layer, "normalization", layer) is not None


class EnsembleLayerNormalization(keras.layers.Layer):
    """Layer normalization (Ba et al. 2016) with a scale and an offset for each member."""

    def __init__(self, members: int, units: int, *, name: str, dtype: str) -> None:
        super().__init__(name=name, dtype=dtype)
        self.gamma = self.add_weight(name="gamma", shape=(members, units), initializer="ones")
        self.beta = self.add_weight(name="beta", shape=(members, units), initializer="zeros")
        self.built = True

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Normalizes `[members, B, units]` over its last axis."""
        scale, offset = self.gamma[:, tf.newaxis, :], self.beta[:, tf.newaxis, :]
        return standardize(inputs) * scale + offset

    def first(self, inputs: tf.Tensor) -> tf.Tensor:
        """Normalizes `[B, units]` with the scale and offset of member 0."""
        gamma, beta = (tf.cast(v[0], self.compute_dtype) for v in (self.gamma, self.beta))
        return standardize(inputs) * gamma + beta


class EnsembleBatchNormalization(keras.layers.Layer):
    """Batch normalization (Ioffe and Szegedy 2015) with statistics for each member.

    In training mode, `[members, B, units]` is normalized by its mean and variance over B, and the
    running averages move toward this mean and variance by a fraction of 1 - `momentum`. Otherwise,
    the running averages are used.

    Args:
        members: C, the number of members.
        units: The number of units.
        name: Name of the layer.
        dtype: Dtype policy.
        momentum: Decay of the running averages per update, in [0, 1).
        epsilon: Number added to variances.
    """

    def __init__(
        self,
        members: int,
        units: int,
        *,
        name: str,
        dtype: str,
        momentum: float = 0.99,
        epsilon: float = 1e-3,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        self._momentum, self._epsilon, shape = momentum, epsilon, (members, units)
        self.gamma = self.add_weight(name="gamma", shape=shape, initializer="ones")
        self.beta = self.add_weight(name="beta", shape=shape, initializer="zeros")
        averages = {"shape": shape, "trainable": False}
        self.mean = self.add_weight(name="moving_mean", initializer="zeros", **averages)
        self.variance = self.add_weight(name="moving_variance", initializer="ones", **averages)
        self.built = True

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Normalizes `[members, B, units]` over B."""
        wide = tf.cast(inputs, self.variable_dtype)
        mean, variance = self.mean.value, self.variance.value
        if training:
            mean, variance = tf.nn.moments(wide, axes=[1])  # [members, units]
            for average, new in ((self.mean, mean), (self.variance, variance)):
                average.assign(new + self._momentum * (average.value - new))
        scale = self.gamma.value * tf.math.rsqrt(variance + self._epsilon)
        offset = self.beta.value - mean * scale
        return tf.cast(wide * scale[:, tf.newaxis, :] + offset[:, tf.newaxis, :], inputs.dtype)

    def first(self, inputs: tf.Tensor) -> tf.Tensor:
        """Normalizes `[B, units]` by the running averages of member 0."""
        scale = self.gamma[0] * tf.math.rsqrt(self.variance[0] + self._epsilon)
        wide = tf.cast(inputs, self.variable_dtype)
        return tf.cast((wide - self.mean[0]) * scale + self.beta[0], inputs.dtype)


def standardize(inputs: tf.Tensor) -> tf.Tensor:
    """Shifts and scales the last axis to mean 0 and variance 1."""
    wide = tf.cast(inputs, tf.float32) if inputs.dtype == tf.bfloat16 else inputs
    mean, variance = tf.nn.moments(wide, axes=[-1], keepdims=True)
    return tf.cast((wide - mean) * tf.math.rsqrt(variance + LAYER_NORM_EPSILON), inputs.dtype)
