"""Replay buffers in NumPy: transitions, windows, packed row layouts, buffers and samplers."""

from __future__ import annotations

import numpy as np

from eagerly.buffers.accumulators import Accumulator, OneStep
from eagerly.buffers.frames import FrameLayout, Frames
from eagerly.buffers.hindsight import FINAL, STRATEGIES, Hindsight
from eagerly.buffers.mixed import MixedBuffer
from eagerly.buffers.n_step import NStep
from eagerly.buffers.pixels import PixelReplayBuffer
from eagerly.buffers.prioritized import LAPSampler, ProportionalSampler
from eagerly.buffers.replay import Buffer, ReplayBuffer
from eagerly.buffers.samplers import Sample, Sampler, UniformSampler
from eagerly.buffers.sequences import SequenceReplayBuffer
from eagerly.buffers.transition import Layout, RowLayout, Transition
from eagerly.buffers.window import BURN_IN, LEARNED, PADDING, SequenceLayout, Window

__all__ = [
    "BURN_IN",
    "FINAL",
    "LEARNED",
    "PADDING",
    "STRATEGIES",
    "Accumulator",
    "Buffer",
    "FrameLayout",
    "Frames",
    "Hindsight",
    "LAPSampler",
    "Layout",
    "MixedBuffer",
    "NStep",
    "OneStep",
    "PixelReplayBuffer",
    "ProportionalSampler",
    "Replay",
    "ReplayBuffer",
    "RowLayout",
    "Sample",
    "Sampler",
    "SequenceLayout",
    "SequenceReplayBuffer",
    "Transition",
    "UniformSampler",
    "Window",
    "replay_buffer",
]


Replay = Buffer | MixedBuffer


def replay_buffer(
    layout: Layout,
    capacity: int,
    *,
    seed: int | np.random.SeedSequence = 0,
    sampler: Sampler | None = None,
) -> Buffer:
    """Creates an empty buffer for at most `capacity` rows of the layout; see `Buffer`.

    Raises:
        TypeError: If the sampler requires per-row values, and the layout's buffer stores episodes.
        ValueError: If the capacity is not positive.
    """
    if isinstance(layout, FrameLayout):
        return PixelReplayBuffer(capacity, layout, seed=seed, sampler=sampler)
    if isinstance(layout, SequenceLayout):
        return SequenceReplayBuffer(capacity, layout, seed=seed, sampler=sampler)
    sizes = layout.observation_size, layout.action_size
    return ReplayBuffer(capacity, *sizes, seed=seed, sampler=sampler)
