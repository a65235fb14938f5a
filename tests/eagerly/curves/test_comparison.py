"""Checks the recorded returns of random policies against episodes with other seeds."""

from __future__ import annotations

from collections.abc import Iterable

import gymnasium
import numpy as np
import pytest

from eagerly.benchmarks.grid import parts
from eagerly.curves.comparison import RANDOM_RETURNS
from eagerly.environments.registration import POSITIONS
from eagerly.storage.presets import ENVIRONMENTS


def random_returns(env: str, seeds: Iterable[int]) -> np.ndarray:
    """Plays one episode of uniformly random actions per seed and returns the episode returns.

    Each seed determines both the environment and the actions.
    """
    made = gymnasium.make(env)
    returns = []
    for seed in seeds:
        made.reset(seed=seed)
        made.action_space.seed(seed)
        total, ended = 0.0, False
        while not ended:
            _, reward, terminated, truncated, _ = made.step(made.action_space.sample())
            total, ended = total + float(reward), terminated or truncated
        returns.append(total)
    made.close()
    return np.array(returns)


def test_every_environment_with_a_preset_or_a_curve_has_a_random_return() -> None:
    # The random returns of other packages' tasks (`package:id`) depend on their arguments.
    drawn = {cell.env for part in parts().values() for cell in part if ":" not in cell.env}
    assert set(RANDOM_RETURNS) == set(ENVIRONMENTS) | drawn


def test_partially_observable_variants_have_the_same_random_returns() -> None:
    partly = {name: base for name, (base, *_) in POSITIONS.items() if name in RANDOM_RETURNS}
    assert partly
    for name, base in partly.items():
        assert RANDOM_RETURNS[name] == RANDOM_RETURNS[base]
        np.testing.assert_array_equal(random_returns(name, [7]), random_returns(base, [7]))


@pytest.mark.parametrize(
    ("env", "episodes"),
    [
        ("Pendulum-v1", 40),
        ("InvertedPendulum-v5", 100),
        ("InvertedDoublePendulum-v5", 100),
        ("Hopper-v5", 40),
        ("Walker2d-v5", 40),
        ("Reacher-v5", 40),
        ("Ant-v5", 10),
        ("Humanoid-v5", 20),
        ("HalfCheetah-v5", 5),
        ("Swimmer-v5", 5),
    ],
)
def test_random_actions_reach_the_recorded_return(env: str, episodes: int) -> None:
    returns = random_returns(env, range(1000, 1000 + episodes))
    error = np.std(returns, ddof=1) * np.sqrt(1 / episodes + 1 / 200)
    assert abs(np.mean(returns) - RANDOM_RETURNS[env]) < 4 * error
