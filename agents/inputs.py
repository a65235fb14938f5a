"""Converts replay samples to batches, whose rows are transitions or the steps of windows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from eagerly.agents.augmentation import RandomShift
from eagerly.agents.update_random import UpdateRandom
from eagerly.buffers import BURN_IN, PADDING, FrameLayout, Window
from eagerly.networks import History
from eagerly.seeding import Stream, seed_word
from eagerly.spaces import Actions, Observations


class Batch(NamedTuple):
    """B steps as tensors. For recurrent networks, the steps of all windows are concatenated.

    Attributes:
        observation: The input of actor and critics: `[B, O]`, or a `History` if they are recurrent.
        action: `[B, A]` in [-1, 1].
        reward: `[B]`.
        discount: `[B]` in [0, 1], see `Transition`.
        next_observation: Like `observation`, one step later.
        mask: `[B]` bool, the steps included in losses and metrics; all if None.
        weight: `[B]`, importance weights of the critics' losses; 1 if None.
    """

    observation: Any
    action: tf.Tensor
    reward: tf.Tensor
    discount: tf.Tensor
    next_observation: Any
    mask: tf.Tensor | None = None
    weight: tf.Tensor | None = None


def batch_of_frames(layout: FrameLayout, rows: tf.Tensor, dtype: tf.DType) -> Batch:
    """Assembles transitions from rows `[B, S + 1, width]` with images as packed bytes."""

    def bytes_of(columns: tf.Tensor) -> tf.Tensor:
        numbers = tf.cast(tf.bitcast(columns, tf.uint8), tf.float32)
        return tf.reshape(numbers, [*columns.shape[:-1], -1])

    parts = layout.unpack(rows, bytes_of, lambda parts: tf.concat(parts, axis=-1))
    return Batch(*(tf.cast(part, dtype) for part in parts))


def batch_of_windows(window: Window) -> Batch:
    """Flattens the steps of windows `[N, T, ...]` into a batch of N · T rows.

    Padding, which may contain NaN, is set to 0 here, before any network reads it. Burn-in steps
    update the recurrent state, but are excluded from the mask.
    """
    goes_on = window.role > PADDING
    valid = tf.concat([tf.ones_like(goes_on[:, :1]), goes_on], axis=1)  # [N, T + 1]

    def clean(part: tf.Tensor, keep: tf.Tensor) -> tf.Tensor:
        keep = keep[..., tf.newaxis] if part.shape.rank > keep.shape.rank else keep
        return tf.where(keep, part, tf.zeros_like(part))

    def flat(part: tf.Tensor) -> tf.Tensor:
        return tf.reshape(part, [-1, *part.shape[2:]])

    history = History(
        clean(window.observation, valid),
        clean(window.previous_action, valid),
        clean(window.previous_reward, valid),
        valid,
        goes_on,
    )
    observation, action, reward, known = (part[:, :-1] for part in history[:4])
    return Batch(
        observation=History(observation, action, reward, known, known),
        action=flat(history.previous_action[:, 1:]),
        reward=flat(history.previous_reward[:, 1:]),
        discount=flat(clean(window.discount, goes_on)),
        next_observation=history,
        mask=flat(window.role > BURN_IN),
    )


class Inputs:
    """Converts rows of a replay buffer to batches.

    Args:
        layout: The layout of a row.
        samples_per_update: Samples in an update: transitions or windows.
        dtype: Dtype of batches.

    Attributes:
        layout, samples_per_update, dtype: As given.
        row_dtype: Dtype of rows when TensorFlow receives them.
    """

    def __init__(self, layout: Any, samples_per_update: int, dtype: tf.DType) -> None:
        self.layout, self.samples_per_update = layout, samples_per_update
        self.dtype = self.row_dtype = dtype

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of the samples of one update."""
        return self.samples_per_update, *self.layout.sample_shape

    @property
    def rows_per_update(self) -> int:
        """B, the number of rows in a batch."""
        return self.samples_per_update

    def transferred(self, rows: np.ndarray) -> tf.Tensor:
        """Converts the rows of a call to a tensor. On a CPU, the tensor shares their memory.

        Do not modify the rows until the compiled call, which reads the tensor, has returned.
        """
        return tf.cast(tf.experimental.dlpack.from_dlpack(rows.__dlpack__()), self.row_dtype)

    def batch(self, rows: tf.Tensor, number: tf.Tensor, weight: tf.Tensor | None = None) -> Batch:
        """Builds the batch of one update.

        Args:
            rows: Samples `[samples_per_update, *layout.sample_shape]`.
            number: Scalar int64, the number of the update.
            weight: `[samples_per_update]`, importance weights of the samples, or None.
        """
        return Batch(*self.layout.unpack(rows))._replace(weight=weight)


class FrameInputs(Inputs):
    """Converts transitions with images, which are stored as bytes and optionally shifted.

    Args:
        layout, samples_per_update, dtype: As in `Inputs`.
        shift: Shifts the images at random; None for no shifts.
        seed: Seed of the run.
    """

    def __init__(self, *arguments: Any, shift: RandomShift | None, seed: int) -> None:
        super().__init__(*arguments)
        # float32, as in the buffer: casting would corrupt bytes that are packed into floats.
        self.row_dtype, self._shift = tf.float32, shift
        self._seed = seed

    def batch(self, rows: tf.Tensor, number: tf.Tensor, weight: tf.Tensor | None = None) -> Batch:
        """Builds the batch of one update from rows `[B, S + 1, width]`."""
        batch = batch_of_frames(self.layout, rows, self.dtype)._replace(weight=weight)
        if self._shift is None:
            return batch
        shape = 2 * self.rows_per_update, self._shift.images
        seed = seed_word(self._seed, Stream.AUGMENTATION)
        random = UpdateRandom(seed, number, self.dtype)
        now, then = tf.split(random.uniform_pairs(shape), 2, axis=1)
        return batch._replace(
            observation=self._shift(batch.observation, now),
            next_observation=self._shift(batch.next_observation, then),
        )


class WindowInputs(Inputs):
    """Converts windows of steps, for recurrent networks."""

    @property
    def rows_per_update(self) -> int:
        """B, the number of steps in a batch, including padding."""
        return self.samples_per_update * int(self.layout.length)

    def batch(self, rows: tf.Tensor, number: tf.Tensor, weight: tf.Tensor | None = None) -> Batch:
        """Builds the batch of one update from windows `[N, T + 1, width]` with weights `[N]`."""
        if weight is not None:
            weight = tf.repeat(weight, int(self.layout.length))
        return batch_of_windows(self.layout.unpack(rows))._replace(weight=weight)


def inputs_of(config: Any, observations: Observations, actions: Actions, seed: int) -> Inputs:
    """Returns the `Inputs` for an agent with these settings, layouts and seed."""
    dtype = tf.dtypes.as_dtype(config.variable_dtype)
    layout = config.layout(observations, actions)
    if config.remembers:
        return WindowInputs(layout, config.sequences_per_update, dtype)
    if not observations.images:
        return Inputs(layout, config.batch_size, dtype)
    shift = RandomShift(observations, config.random_shift) if config.random_shift else None
    return FrameInputs(layout, config.batch_size, dtype, shift=shift, seed=seed)
