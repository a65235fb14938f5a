"""Observations in the replay buffer of a run's newest checkpoint."""

from __future__ import annotations

import numpy as np

from eagerly.buffers import FrameLayout, Layout
from eagerly.buffers.transition import StepLayout
from eagerly.spaces import Actions, Observations
from eagerly.storage.checkpoint_reader import required_checkpoint
from eagerly.storage.run import Run


def replayed_rows(run: Run, observations: Observations, actions: Actions, count: int) -> np.ndarray:
    """Reads evenly spaced observations `[n, O]` from the newest checkpoint's replay buffer.

    They are rows of `observations.actor`, without the columns that only critics see.

    Args:
        run: The run.
        observations: Layout of the observations.
        actions: Layout of the actions.
        count: Maximum number of observations.

    Returns:
        The observations. Empty if the run has no replay buffer, for example because its directory
        was copied without it.

    Raises:
        RunError: If there is no checkpoint with an intact replay buffer.
    """
    size = observations.actor.size
    newest = required_checkpoint(run.path, with_replay=False)
    if not any(newest.files.is_file(segment.path) for segment in newest.manifest.replay):
        return np.zeros((0, size), np.float32)
    saved = required_checkpoint(run.path)
    layout = run.agent_config.layout(observations, actions)
    segments = saved.manifest.replay
    first, last = segments[0].start if segments else 0, segments[-1].stop if segments else 0
    numbers = np.unique(np.linspace(first, last - 1, count).astype(np.int64))
    found = [np.zeros((0, size), np.float32)]
    for segment in segments:
        inside = numbers[(segment.start <= numbers) & (numbers < segment.stop)] - segment.start
        if len(inside):
            rows = saved.rows(segment)[inside]
            found.append(actor_columns(layout, rows, size))
    return np.concatenate(found)


def actor_columns(layout: Layout, rows: np.ndarray, size: int) -> np.ndarray:
    """Returns the observations `[n, size]` of the actor in rows of a replay buffer.

    Args:
        layout: The layout of the rows.
        rows: The rows, `[n, width]`.
        size: The number of columns that the actor sees. They must not belong to images, of which
            rows contain only the newest frames.
    """
    if isinstance(layout, StepLayout):
        columns = layout.split(rows).observation
        if isinstance(layout, FrameLayout):
            columns = columns[:, : layout.plain_size]  # the others are images for critics
    else:
        columns = layout.unpack(rows).observation
    return np.asarray(columns[:, -size:])
