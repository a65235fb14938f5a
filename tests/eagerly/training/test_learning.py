"""TD3 solves problems with a known best policy, and one that no constant policy can solve."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eagerly import Trainer, open_run
from eagerly.storage.evaluations import read_results
from tests import toys

toys.register()

SETTINGS: dict[str, Any] = {
    "warmup_steps": 500,
    "actor_learning_rate": 1e-3,
    "critic_learning_rate": 1e-3,
    "batch_size": 64,
    "hidden_sizes": (64, 64),
}


def trained(path: Path, **settings: Any) -> Trainer:
    trainer = Trainer(open_run(path / "run", "td3", SETTINGS | settings))
    trainer.train()
    trainer.close()
    return trainer


def test_a_bandit_is_solved(tmp_path: Path) -> None:
    # Episodes have only one step, so half as many updates suffice with larger learning rates.
    quick = {"actor_learning_rate": 3e-3, "critic_learning_rate": 5e-3, "replay_ratio": 0.5}
    trainer = trained(tmp_path, env="Bandit-v0", steps=1500, mode="graph", **quick)
    observations = np.linspace(-1, 1, 9, dtype=np.float32)[:, np.newaxis]
    actions = trainer.agent.act(observations)
    assert np.abs(actions - [0.5, -0.25]).max() < 0.1


@pytest.mark.long
def test_the_regulator_policy_matches_the_riccati_gain(tmp_path: Path) -> None:
    discount = 0.9
    trainer = trained(tmp_path, env="Regulator-v0", steps=6000, discount=discount)
    # For x' = x + b u, cost x² + r u² and discount g, the optimal value is V(x) = -p x² with
    # p = 1 + g p - (g p b)² / (r + g p b²).
    b, r, p = 0.5, 0.25, 1.0
    for _ in range(1000):
        p = 1 + discount * p - (discount * p * b) ** 2 / (r + discount * p * b**2)
    gain = discount * p * b / (r + discount * p * b**2)
    states = np.array([[-0.8], [-0.4], [0.4], [0.8]], np.float32)
    actions = trainer.actions.to_environment(trainer.agent.act(states))
    gains = -actions / states
    assert abs(gains.mean() - gain) < 0.1 * gain, (gains, gain)


@pytest.mark.long
def test_pendulum_swings_up(tmp_path: Path) -> None:
    trainer = trained(
        tmp_path,
        env="Pendulum-v1",
        steps=7000,
        warmup_steps=1000,
        evaluate_every_steps=1000,
        batch_size=256,
    )
    # The return is at most -900 with a constant torque, and about -150 if the policy swings up.
    assert read_results(trainer.run.evaluations_path).return_mean.max() > -300
