"""The observations of the actor in rows of the replay buffer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from eagerly.agents.config import AgentConfig
from eagerly.buffers import FrameLayout
from eagerly.buffers.transition import StepLayout
from eagerly.storage.replayed import actor_columns

SPACE = spaces.Dict(
    image=spaces.Box(0, 255, (12, 12, 3), np.uint8),
    secret=spaces.Box(-1.0, 1.0, (2,)),
    seen=spaces.Box(-1.0, 1.0, (3,)),
)


@pytest.mark.parametrize(
    "settings",
    [
        {"critic_entries": "image,secret"},
        {"critic_entries": "secret", "ignore_entries": "image"},
        {"critic_entries": "secret", "ignore_entries": "image", "memory": "gru"},
    ],
)
def test_columns_of_critics_are_left_out(settings: dict[str, Any]) -> None:
    config = AgentConfig(**settings)
    observations, actions = config.spaces(SPACE, spaces.Box(-1.0, 1.0, (2,)))
    layout = config.layout(observations, actions)
    given = np.random.default_rng(0).uniform(0.0, 255.0, (5, observations.size))
    given = given.astype(np.float32)
    packed = layout.pack(given) if isinstance(layout, FrameLayout) else given
    rows = np.zeros((5, layout.width), np.float32)
    start = actions.size + 2 if isinstance(layout, StepLayout) else 0
    rows[:, start : start + packed.shape[1]] = packed
    np.testing.assert_array_equal(actor_columns(layout, rows, 3), given[:, -3:])
