"""NumPy replay: the transition type, the ring buffer, and the seeds of what is random."""

from eagerly.buffers.replay import ReplayBuffer
from eagerly.buffers.seeding import Stream, seed_sequence, seed_word
from eagerly.buffers.transition import RowLayout, Transition

__all__ = ["ReplayBuffer", "RowLayout", "Stream", "Transition", "seed_sequence", "seed_word"]
