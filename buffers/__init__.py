"""NumPy replay: transitions, windows, their buffers, and the seeds of what is random."""

from eagerly.buffers.factory import Buffer, Layout, replay_buffer
from eagerly.buffers.frames import FrameLayout, Frames
from eagerly.buffers.pixels import PixelReplayBuffer
from eagerly.buffers.replay import ReplayBuffer
from eagerly.buffers.rows import RowBuffer
from eagerly.buffers.sequences import SequenceReplayBuffer
from eagerly.buffers.transition import RowLayout, Transition
from eagerly.buffers.window import BURN_IN, LEARNED, PADDING, SequenceLayout, Window

__all__ = [
    "BURN_IN",
    "LEARNED",
    "PADDING",
    "Buffer",
    "FrameLayout",
    "Frames",
    "Layout",
    "PixelReplayBuffer",
    "ReplayBuffer",
    "RowBuffer",
    "RowLayout",
    "SequenceLayout",
    "SequenceReplayBuffer",
    "Transition",
    "Window",
    "replay_buffer",
]
