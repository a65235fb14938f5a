"""Encoders of composite observations: one per entry, with their features concatenated."""

from __future__ import annotations

import math
from typing import Any

import keras
import tensorflow as tf

from eagerly.networks.initializers import linear_initializers, weight_seeds
from eagerly.networks.layers import Linear, built
from eagerly.networks.normalization import ObservationNormalization
from eagerly.policies.architecture import EntryEncoders
from eagerly.policies.images import FILTERS, convolutions, norm_epsilon, sides_after
from eagerly.spaces import Entry, Observations
from eagerly.spaces.observations import IMAGE


class ImageEncoder(keras.layers.Layer):
    """Maps images to features: convolutions, a linear layer, layer normalization and a tanh.

    The order of layers is that of Yarats et al. 2021, "Improving Sample Efficiency in Model-Free
    Reinforcement Learning from Images", section 4.2. Strides are larger than in the paper, to be
    fast on CPUs, and small images have fewer layers; see `convolutions`.

    Args:
        entry: The image.
        units: Number of features.
        initializer, seed, dtype, name: As in `Linear`.

    Raises:
        ValueError: If the image is too small for the convolutions.
    """

    def __init__(
        self, entry: Entry, units: int, *, initializer: str, seed: int, dtype: str, name: str
    ) -> None:
        super().__init__(name=name, dtype=dtype, autocast=False)
        self._frames = entry.frames
        height, width, channels = entry.image_shape
        try:
            layers = convolutions(height, width)
        except ValueError as error:
            raise ValueError(
                f"image {entry.path!r} must be {error}: flatten it with "
                "gymnasium.wrappers.FlattenObservation, or use your own model, which can have "
                "inputs of any size"
            ) from None
        *seeds, last = weight_seeds(seed, len(layers) + 1)
        sides = height, width
        self._convolutions = []
        for index, ((window, strides), own) in enumerate(zip(layers, seeds, strict=True)):
            kernel, bias = linear_initializers(initializer, math.prod(window) * channels, own)
            layer = keras.layers.Conv2D(
                FILTERS,
                window,
                strides,
                data_format="channels_last",
                kernel_initializer=kernel,
                bias_initializer=bias,
                name=f"{name}_convolution_{index}",
                dtype=dtype,
            )
            self._convolutions.append(built(layer, *sides, channels))
            sides, channels = sides_after(sides, window, strides), FILTERS
        size = math.prod(sides) * channels
        parts: dict[str, Any] = {"initializer": initializer, "seed": last, "dtype": dtype}
        self._linear = built(Linear(size, units, name=f"{name}_linear", **parts), size)
        norm = keras.layers.LayerNormalization(
            epsilon=norm_epsilon(height, width), name=f"{name}_norm", dtype=dtype
        )
        self._norm = built(norm, units)
        self.built = True

    def call(self, columns: tf.Tensor) -> tf.Tensor:
        """Maps flat images `[B, K · H · W · C]`, with values from 0 to 255, to `[B, units]`."""
        count, height, width, channels = self._frames
        images = tf.reshape(tf.cast(columns, self.compute_dtype), [-1, *self._frames])
        images = tf.transpose(images, [0, 2, 3, 1, 4])
        hidden = tf.reshape(images, [-1, height, width, count * channels]) / 255.0
        # Without subtracting the mean, the background would dominate the foreground.
        hidden -= tf.reduce_mean(hidden, axis=[1, 2, 3], keepdims=True)
        for layer in self._convolutions:
            hidden = tf.nn.relu(layer(hidden))
        hidden = self._linear(tf.reshape(hidden, [-1, math.prod(hidden.shape[1:])]))
        return tf.tanh(self._norm(hidden))


class Encoder(keras.layers.Layer):
    """Maps observation rows to the concatenated features of all entries, followed by the mask.

    Images have an `ImageEncoder`; vectors and choices have one linear layer with an activation.

    Args:
        observations: Layout of the observations.
        units: Number of features per entry.
        activation: Activation of the linear layers.
        normalization: Applied to rows first.
        initializer, seed, dtype: As in `Linear`.

    Attributes:
        observation_size: O.
        features: F, the number of features, including the mask.
        normalization: As given.
        architecture: Description of the encoder.
    """

    def __init__(
        self,
        observations: Observations,
        *,
        units: int,
        activation: str,
        initializer: str,
        normalization: ObservationNormalization | None,
        seed: int,
        dtype: str,
    ) -> None:
        super().__init__(name="encoder", dtype=dtype, autocast=False)
        self._observations, self.normalization = observations, normalization
        self.observation_size = observations.size
        entries = observations.entries
        self.architecture = EntryEncoders(entries=tuple(entries), units=units)
        self.features = units * len(entries) + observations.masked
        parts: dict[str, Any] = {"initializer": initializer, "dtype": dtype}
        self._encoders = []
        for index, (entry, own) in enumerate(
            zip(entries, weight_seeds(seed, len(entries)), strict=True)
        ):
            # Entry names may contain any characters, but layer names may not.
            name = f"entry_{index}"
            if entry.kind == IMAGE:
                encoder: Any = ImageEncoder(entry, units, seed=own, name=name, **parts)
            else:
                size = entry.stop - entry.start
                layer = Linear(
                    size, units, activation=activation, seed=own, name=f"{name}_linear", **parts
                )
                encoder = built(layer, size)
            self._encoders.append(encoder)
        self.built = True

    def call(self, rows: tf.Tensor) -> tf.Tensor:
        """Maps rows `[B, O]` to features `[B, F]`."""
        scaled = rows if self.normalization is None else self.normalization(rows)
        features = [
            encoder(scaled[:, entry.start : entry.stop])
            for entry, encoder in zip(self._observations.entries, self._encoders, strict=True)
        ]
        if self._observations.masked:
            features.append(rows[:, -self._observations.masked :])
        return tf.concat([tf.cast(part, self.variable_dtype) for part in features], axis=-1)
