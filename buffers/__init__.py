"""NumPy replay: transitions, windows, their buffers, and the seeds of what is random."""

from eagerly.buffers.making import replay_buffer
from eagerly.buffers.replay import ReplayBuffer
from eagerly.buffers.rows import RowBuffer
from eagerly.buffers.seeding import Stream, seed_sequence, seed_word
from eagerly.buffers.sequences import SequenceReplayBuffer
from eagerly.buffers.transition import RowLayout, Transition
from eagerly.buffers.window import BURN_IN, LEARNED, PADDING, SequenceLayout, Window

__all__ = [
    "BURN_IN",
    "LEARNED",
    "PADDING",
    "ReplayBuffer",
    "RowBuffer",
    "RowLayout",
    "SequenceLayout",
    "SequenceReplayBuffer",
    "Stream",
    "Transition",
    "Window",
    "replay_buffer",
    "seed_sequence",
    "seed_word",
]
