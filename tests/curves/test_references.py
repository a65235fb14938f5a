"""What a random policy reaches, played again where an episode is short."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from eagerly.curves.references import RANDOM_RETURNS
from eagerly.training.presets import ENVIRONMENTS


def test_every_environment_with_a_preset_has_one() -> None:
    assert set(RANDOM_RETURNS) == set(ENVIRONMENTS)


@pytest.mark.parametrize("env", ["Pendulum-v1", "InvertedPendulum-v5", "Hopper-v5", "Walker2d-v5"])
def test_random_actions_reach_it(env: str) -> None:
    made = gymnasium.make(env)
    returns = []
    for seed in range(40):
        made.reset(seed=seed)
        made.action_space.seed(seed)
        total, ended = 0.0, False
        while not ended:
            _, reward, terminated, truncated, _ = made.step(made.action_space.sample())
            total, ended = total + float(reward), terminated or truncated
        returns.append(total)
    error = np.std(returns) / np.sqrt(len(returns))
    assert abs(np.mean(returns) - RANDOM_RETURNS[env]) < 4 * error
