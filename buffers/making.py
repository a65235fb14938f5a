"""The replay buffer that a layout is of."""

from __future__ import annotations

import numpy as np

from eagerly.buffers.replay import ReplayBuffer
from eagerly.buffers.sequences import SequenceReplayBuffer
from eagerly.buffers.transition import RowLayout
from eagerly.buffers.window import SequenceLayout


def replay_buffer(
    layout: RowLayout | SequenceLayout, capacity: int, *, seed: int | np.random.SeedSequence = 0
) -> ReplayBuffer | SequenceReplayBuffer:
    """Makes an empty buffer of rows of a layout.

    Args:
        layout: Of transitions, or of windows of steps.
        capacity: Most rows kept.
        seed: Seed of the sampling.

    Raises:
        ValueError: If a size is not positive.
    """
    sizes = layout.observation_size, layout.action_size
    if isinstance(layout, RowLayout):
        return ReplayBuffer(capacity, *sizes, seed=seed)
    return SequenceReplayBuffer(
        capacity, *sizes, length=layout.length, burn_in=layout.burn_in, seed=seed
    )
