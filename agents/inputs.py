"""What an update learns from: transitions, or the steps of windows, as rows of one batch."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from eagerly.buffers import (
    BURN_IN,
    LEARNED,
    PADDING,
    FrameLayout,
    Layout,
    RowLayout,
    Window,
)
from eagerly.networks import History


class Batch(NamedTuple):
    """B steps, as tensors; with a memory those of all windows one behind the other.

    Attributes:
        observation: What actor and critics are called with: `[B, O]`, or with a memory the
            `History` of each step.
        action: `[B, A]` in [-1, 1].
        reward: `[B]`.
        discount: `[B]` in [0, 1], see `Transition`.
        next_observation: As `observation`, one step later.
        mask: `[B]` bool, which steps losses and metrics count; None counts all.
    """

    observation: Any
    action: tf.Tensor
    reward: tf.Tensor
    discount: tf.Tensor
    next_observation: Any
    mask: tf.Tensor | None = None


def batch_of(layout: Layout, rows: tf.Tensor, dtype: tf.DType = tf.float32) -> Batch:
    """Makes a batch of packed rows.

    Args:
        layout: Where things stand in them.
        rows: `[B, width]`; or windows `[B, T + 1, width]`; or, with images, `[B, S + 1, width]`.
        dtype: Dtype of what comes out of rows with images.
    """
    if isinstance(layout, RowLayout):
        return Batch(*layout.unpack(rows))
    if isinstance(layout, FrameLayout):
        return batch_of_frames(layout, rows, dtype)
    return batch_of_windows(layout.unpack(rows))


def batch_of_frames(layout: FrameLayout, rows: tf.Tensor, dtype: tf.DType) -> Batch:
    """Puts transitions together of rows with bytes, `[B, S + 1, width]`."""

    def bytes_of(columns: tf.Tensor) -> tf.Tensor:
        numbers = tf.cast(tf.bitcast(columns, tf.uint8), tf.float32)
        return tf.reshape(numbers, [*columns.shape[:-1], -1])

    parts = layout.unpack(rows, bytes_of, lambda parts: tf.concat(parts, axis=-1))
    return Batch(*(tf.cast(part, dtype) for part in parts))


def batch_of_windows(window: Window) -> Batch:
    """Lays the steps of windows `[N, T, ...]` out as a batch of N · T.

    What stands in padding is put to 0 here, whatever it was, NaN too: no network meets it. Steps
    of burn-in reach the memories, and are left out of the mask.
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


assert PADDING < BURN_IN < LEARNED  # what the comparisons above take for granted
