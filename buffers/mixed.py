"""A replay buffer next to rows of logged data, which are never overwritten."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from eagerly.buffers.replay import Buffer, aligned
from eagerly.buffers.samplers import Sample
from eagerly.buffers.transition import Transition
from eagerly.state import Saved


class MixedBuffer(Saved):
    """Draws part of each batch from logged data, and the rest from a replay buffer.

    The rows of the data have the lowest numbers, from 0. Rows that are added belong to the replay
    buffer. While it is empty, all samples are drawn from the data.

    Args:
        data: The logged data. Its capacity must suffice for all rows.
        online: The replay buffer, with the same layout and the same kind of sampler.
        share: Share of each batch that is drawn from the data, rounded to whole samples, in [0, 1].

    Attributes:
        data, online: The two buffers.
        layout, keeps_episodes: Those of `online`.
        sampler: The sampler of `online`.
    """

    _saved = ("data", "online")

    def __init__(self, data: Buffer, online: Buffer, share: float) -> None:
        self.data, self.online, self._share = data, online, share
        self.layout, self.keeps_episodes = online.layout, online.keeps_episodes
        self.sampler = online.sampler
        self._of_data = 0  # samples of the last draw that are from the data, per update
        self._sampled = np.empty(0, np.float32)

    @property
    def capacity(self) -> int:
        """Maximum number of rows in the replay buffer."""
        return self.online.capacity

    @property
    def added(self) -> int:
        """Total number of rows of the data, and of rows ever added."""
        return self.data.added + self.online.added

    @property
    def permanent(self) -> int:
        """Number of rows of the data."""
        return self.data.added

    @property
    def oldest(self) -> int:
        """Number of the oldest row in the replay buffer."""
        return self.permanent + self.online.oldest

    def __len__(self) -> int:
        """Returns the number of rows of the data and the replay buffer."""
        return len(self.data) + len(self.online)

    def add(self, transitions: Transition, ended: np.ndarray | None = None) -> None:
        """Adds transitions to the replay buffer, see `Buffer.add`."""
        self.online.add(transitions, ended)

    def on_reset(self, began: np.ndarray) -> None:
        """See `Buffer.on_reset`."""
        self.online.on_reset(began)

    def draw(self, updates: int, batch_size: int) -> Sample:
        """Draws samples as `Buffer.draw` does. Those from the data come first in each batch."""
        self._of_data = round(self._share * batch_size) if len(self.online) else batch_size
        counts = (self.data, self._of_data), (self.online, batch_size - self._of_data)
        parts = [buffer.draw(updates, count) for buffer, count in counts if count]
        if len(parts) == 1:
            return parts[0]
        shape = updates, batch_size, *parts[0].rows.shape[2:]
        if self._sampled.shape != shape:
            self._sampled = aligned(shape)
        np.concatenate([part.rows for part in parts], axis=1, out=self._sampled)
        weights = [part.weights for part in parts if part.weights is not None]
        return Sample(self._sampled, np.concatenate(weights, axis=1) if weights else None)

    def sample_rows(self, updates: int, batch_size: int) -> np.ndarray:
        """See `Buffer.sample_rows`."""
        return self.draw(updates, batch_size).rows

    def sample(self, updates: int, batch_size: int) -> Any:
        """See `Buffer.sample`."""
        return self.layout.unpack(self.sample_rows(updates, batch_size))

    def feedback(self, per_row: Mapping[str, np.ndarray]) -> None:
        """Passes values for the rows of the last draw to the samplers, see `Buffer.feedback`."""
        of_data = {name: values[:, : self._of_data] for name, values in per_row.items()}
        of_online = {name: values[:, self._of_data :] for name, values in per_row.items()}
        for buffer, values in ((self.data, of_data), (self.online, of_online)):
            if all(each.size for each in values.values()):
                buffer.feedback(values)

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Returns rows of either the data or the replay buffer, see `Buffer.rows`.

        Raises:
            ValueError: If some rows are not stored, or both buffers have some.
        """
        first = self.permanent
        if stop <= first:
            return self.data.rows(start, stop)
        return self.online.rows(start - first, stop - first)

    def restore_rows(self, start: int, rows: np.ndarray) -> None:
        """Restores rows that `rows` returned, those of the data first, see `Buffer.restore_rows`.

        Raises:
            ValueError: As in `Buffer.restore_rows`; also if the data has too many rows.
        """
        if self.permanent:
            self.online.restore_rows(start - self.permanent, rows)
        elif start or len(rows) > self.data.capacity:
            raise ValueError(
                f"the first rows must be the rows of the data, at most {self.data.capacity}, and "
                f"start at 0; got {len(rows)} rows that start at {start}"
            )
        else:
            self.data.restore_rows(start, rows)
