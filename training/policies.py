"""Taking a trained policy out of a run directory."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import gymnasium
import keras
import numpy as np

from eagerly.agents import agent_class
from eagerly.networks import ActingPolicy, ActionBounds, observation_size
from eagerly.training.checkpoints import Checkpoints
from eagerly.training.errors import RunError
from eagerly.training.run_directory import Run

WHICH = ("best", "latest")


def load_actor(
    run: Run,
    which: str,
    observation_space: gymnasium.Space,
    action_space: gymnasium.Space,
    say: Callable[[str], None],
) -> tuple[Callable[[np.ndarray], np.ndarray], int]:
    """Loads the policy of a run as its newest checkpoint has it.

    Args:
        run: The run.
        which: "best", the one with the best evaluation so far, or "latest".
        observation_space: A flat `Box` of O dimensions.
        action_space: A bounded `Box` of A dimensions.
        say: Takes a line about a damaged checkpoint that is passed over.

    Returns:
        A function from observations `[N, O]` to actions `[N, A]` in [-1, 1], and the step at
        which it was taken.

    Raises:
        RunError: If there is no checkpoint, or no best policy, or its weights do not fit.
    """
    if which not in WHICH:
        raise RunError(f"which must be one of {', '.join(WHICH)}; got {which!r}")
    checkpoints = Checkpoints(run.path, run.config.keep_checkpoints)
    manifest = checkpoints.newest_intact(say, with_replay=False)
    if manifest is None:
        raise RunError(f"{run.path} has no checkpoint yet: train it first")
    if which == "best":
        if manifest.best is None:
            raise RunError(f"{run.path} has no evaluation yet: ask for --which latest")
        weights, steps = checkpoints.best_policy(manifest), int(manifest.state["best"][0])
    else:
        weights, steps = checkpoints.arrays(manifest, "policy"), manifest.steps
    sizes = observation_size(observation_space), ActionBounds(action_space).size
    actor = agent_class(run.agent).build_actor(run.agent_config, *sizes, seed=run.config.seed)
    try:
        assign_weights(actor, weights)
    except ValueError as error:
        raise RunError(f"the policy of {run.path} does not fit its settings: {error}") from error
    return ActingPolicy(actor), steps


def assign_weights(model: keras.Model, weights: Mapping[str, np.ndarray]) -> None:
    """Gives a model the weights that were saved by path.

    Raises:
        ValueError: If a name or a shape differs; the model is unchanged then.
    """
    shapes = {variable.path: tuple(variable.shape) for variable in model.variables}
    given = {path: values.shape for path, values in weights.items()}
    if shapes != given:
        raise ValueError(f"expected weights {shapes}, got {given}")
    for variable in model.variables:
        variable.assign(weights[variable.path])
