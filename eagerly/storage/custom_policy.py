"""Loads policies that need TensorFlow, because their agent or models are custom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from eagerly.agents import agent_class
from eagerly.importing import imported_for
from eagerly.networks import acting_policy
from eagerly.networks.models import assign_weights
from eagerly.quiet import find_devices
from eagerly.storage.run import Run


def custom_actor(
    run: Run, spaces: tuple[gymnasium.Space, gymnasium.Space], weights: Mapping[str, np.ndarray]
) -> Any:
    """Builds the acting model of a run and loads the saved weights into it.

    Args:
        run: The run.
        spaces: Observation space and action space.
        weights: Weights by variable path.

    Raises:
        ValueError: If the weights belong to another model.
    """
    find_devices()
    kind, config, seed = agent_class(run.agent), run.agent_config, run.config.seed
    builder = kind.Builder(config, *spaces, seed=seed)
    least, count = builder.least_parameters(actor_alone=True), sum(w.size for w in weights.values())
    if least > count:  # reject it before allocating a huge model
        raise ValueError(f"the settings require at least {least} weights; got {count}")
    with imported_for(run.agent_module):
        actor = builder.policy_actor()
    assign_weights(actor, weights)
    return acting_policy(actor, builder.actions.size)
