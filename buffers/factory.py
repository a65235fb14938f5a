"""The replay buffer that a layout is of."""

from __future__ import annotations

import numpy as np

from eagerly.buffers.frames import FrameLayout
from eagerly.buffers.pixels import PixelReplayBuffer
from eagerly.buffers.replay import ReplayBuffer
from eagerly.buffers.sequences import SequenceReplayBuffer
from eagerly.buffers.transition import RowLayout
from eagerly.buffers.window import SequenceLayout

Layout = RowLayout | SequenceLayout | FrameLayout
Buffer = ReplayBuffer | SequenceReplayBuffer | PixelReplayBuffer


def replay_buffer(
    layout: Layout, capacity: int, *, seed: int | np.random.SeedSequence = 0
) -> Buffer:
    """Makes an empty buffer of rows of a layout.

    Args:
        layout: Of transitions, of windows of steps, or of steps with images.
        capacity: Most rows kept.
        seed: Seed of the sampling.

    Raises:
        ValueError: If a size is not positive.
    """
    if isinstance(layout, FrameLayout):
        return PixelReplayBuffer(capacity, layout, seed=seed)
    sizes = layout.observation_size, layout.action_size
    if isinstance(layout, RowLayout):
        return ReplayBuffer(capacity, *sizes, seed=seed)
    return SequenceReplayBuffer(
        capacity, *sizes, length=layout.length, burn_in=layout.burn_in, seed=seed
    )
