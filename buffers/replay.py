"""A replay buffer in NumPy: one preallocated array, one gather per sample."""

from __future__ import annotations

import numpy as np

from eagerly.buffers.rows import Incoming, RowBuffer
from eagerly.buffers.transition import RowLayout, Transition


class ReplayBuffer(RowBuffer):
    """Keeps the last `capacity` transitions as packed float32 rows and samples them uniformly.

    The array is reserved at once but memory is touched only as rows are filled: 168 bytes per
    HalfCheetah transition, 168 MB for a million of them.

    Args:
        capacity: Most transitions kept; the oldest is overwritten.
        observation_size: O.
        action_size: A.
        seed: Seed of the sampling, an int or a `numpy.random.SeedSequence`.

    Raises:
        ValueError: If a size is not positive.
    """

    def __init__(
        self,
        capacity: int,
        observation_size: int,
        action_size: int,
        *,
        seed: int | np.random.SeedSequence = 0,
    ) -> None:
        self.layout = RowLayout(observation_size, action_size)
        super().__init__(capacity, self.layout.width, seed)
        self._incoming = Incoming(self.layout)

    def add(self, transitions: Transition, ended: np.ndarray | None = None) -> None:
        """Appends N transitions, in order, overwriting the oldest ones once full.

        Args:
            transitions: Arrays with one leading axis `[N]`, one row per environment. Values are
                stored as float32.
            ended: Which episodes ended with them, `[N]`; makes no difference here.

        Raises:
            ValueError: If a part has the wrong shape, or N is larger than the capacity.
            FloatingPointError: If a part holds NaN or infinite values, after the cast to float32.
            Nothing is stored then.
        """
        count = self._incoming.take(transitions)
        if count > self.capacity:
            raise ValueError(f"cannot add {count} transitions to a capacity of {self.capacity}")
        self._append(self._incoming.rows)

    def sample_rows(self, updates: int, batch_size: int) -> np.ndarray:
        """Gathers packed rows `[updates, batch_size, width]`, drawn uniformly with replacement.

        How many updates are asked for at once does not change which rows an update gets. The
        returned array is reused by the next call with the same sizes: copy what you keep. It
        begins at a multiple of 64 bytes, so that TensorFlow can read it where it is.

        Raises:
            ValueError: If the buffer is empty or a size is not positive.
        """
        self._check_sampling(updates, batch_size)
        return self._taken(self._generator.integers(len(self), size=(updates, batch_size)))

    def sample(self, updates: int, batch_size: int) -> Transition:
        """Samples a `Transition` of arrays `[updates, batch_size, ...]`, views of `sample_rows`."""
        return self.layout.unpack(self.sample_rows(updates, batch_size))
