"""Runs with models of somebody else's: loaded, refused where not given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eagerly import load_policy, open_run
from eagerly.errors import RunError
from tests.agents.test_own_models import functional_critic, late_actor, sequential_actor, sharing
from tests.small_runs import TrainRun

NAMED = "tests.agents.test_own_models:"
BRIEF: dict[str, Any] = {"steps": 60, "warmup_steps": 40, "replay_ratio": 0.1}


def test_a_policy_is_loaded_with_its_factory(train: TrainRun, tmp_path: Path) -> None:
    trainer = train(actor=late_actor, **BRIEF)
    policy = load_policy(tmp_path / "run", "latest", actor=late_actor)
    observation = np.array([0.5, -0.5, 1.0], np.float32)
    acted = trainer.agent.act(observation[np.newaxis])
    np.testing.assert_array_equal(policy(observation), trainer.actions.to_environment(acted)[0])
    again = "the Python factory tests.agents.test_own_models:late_actor: give it again"
    with pytest.raises(RunError, match=again):
        load_policy(tmp_path / "run", "latest")
    with pytest.raises(RunError, match=again):
        train(steps=300)
    with pytest.raises(RunError, match=r"--actor: the run has factory .*late_actor, you gave "):
        train(actor=sequential_actor, steps=300)


def test_a_named_factory_is_found_by_whoever_loads_the_policy(
    train: TrainRun, tmp_path: Path
) -> None:
    named = {"actor": NAMED + "sequential_actor", "critic": NAMED + "functional_critic"}
    trainer = train(**named, normalize_observations=True, **BRIEF)
    policy = load_policy(tmp_path / "run", "latest")
    observation = np.array([0.5, -0.5, 1.0], np.float32)
    acted = trainer.agent.act(observation[np.newaxis])
    np.testing.assert_array_equal(policy(observation), trainer.actions.to_environment(acted)[0])


@pytest.mark.parametrize(
    ("agent", "settings", "idle"),
    [
        ("td3", {"models": sharing}, {"hidden_sizes": (16,)}),
        ("td3", {"actor": late_actor, "critic": functional_critic}, {"activation": "tanh"}),
        ("ddpg", {"critic": functional_critic}, {"action_layer": 1}),
    ],
)
def test_a_setting_of_networks_that_are_not_there_is_refused(
    tmp_path: Path, agent: str, settings: dict, idle: dict
) -> None:
    with pytest.raises(
        RunError, match=f"{next(iter(idle))} has an effect only for networks that are not your own"
    ):
        open_run(tmp_path / "run", agent, settings | idle | {"env": "Pendulum-v1"})


def test_a_setting_of_the_networks_that_are_left_is_taken(tmp_path: Path) -> None:
    settings = {"env": "Pendulum-v1", "actor": late_actor, "activation": "tanh"}
    run = open_run(tmp_path / "run", "td3", settings)
    assert run.agent_config.activation == "tanh"  # of the critics


def test_a_model_that_does_not_fit_ends_before_anything_is_written(
    train: TrainRun, tmp_path: Path
) -> None:
    with pytest.raises(
        RunError, match=r"the actor .* cannot be called with float32 of observation"
    ):
        train(models=sharing, agent="ddpg")  # which is for observations of 4 numbers
    assert not (tmp_path / "run").exists()
