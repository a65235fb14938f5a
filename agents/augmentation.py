"""Random image shifts, which train encoders to ignore offsets of a few pixels.

Kostrikov, Yarats and Fergus 2021, "Image Augmentation Is All You Need" (DrQ), section 3.
"""

from __future__ import annotations

import tensorflow as tf

from eagerly.spaces import Observations


class RandomShift:
    """Shifts each image by up to `pixels` in each direction, repeating its edge pixels.

    All frames of a stack are shifted equally.

    Args:
        observations: The layout of observations as rows.
        pixels: Maximum shift in each direction.

    Attributes:
        images: n, the number of images in an observation.
    """

    def __init__(self, observations: Observations, pixels: int) -> None:
        self._observations, self._pixels = observations, pixels
        self.images = len(observations.images)

    def __call__(self, rows: tf.Tensor, uniform: tf.Tensor) -> tf.Tensor:
        """Shifts the images in rows `[B, O]`, using uniforms `[2, B, n]` for n images."""
        parts, place = [], 0
        for index, entry in enumerate(self._observations.images):
            frames, height, width, channels = entry.frames
            images = tf.reshape(
                rows[:, entry.start : entry.stop], [-1, frames, height, width, channels]
            )
            by = self._distances(uniform[:, :, index])
            images = tf.gather(images, _moved(by[0], height), axis=2, batch_dims=1)
            images = tf.gather(images, _moved(by[1], width), axis=3, batch_dims=1)
            parts += [
                rows[:, place : entry.start],
                tf.reshape(images, [-1, entry.stop - entry.start]),
            ]
            place = entry.stop
        return tf.concat([*parts, rows[:, place:]], axis=1)

    def _distances(self, uniform: tf.Tensor) -> tf.Tensor:
        """Maps uniforms in (0, 1] to integers from -pixels to pixels."""
        steps = 2 * self._pixels + 1
        drawn = tf.cast(tf.math.floor(uniform * steps), tf.int32)
        return tf.minimum(drawn, steps - 1) - self._pixels


def _moved(by: tf.Tensor, size: int) -> tf.Tensor:
    """Returns the source position of each pixel along a shifted axis, `[B, size]`."""
    places = tf.range(size)[tf.newaxis] + by[:, tf.newaxis]
    return tf.clip_by_value(places, 0, size - 1)
