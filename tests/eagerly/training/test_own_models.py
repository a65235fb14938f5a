"""Runs with custom models: loading, and errors for missing or incompatible factories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eagerly import load_policy, open_run
from eagerly.errors import RunError, UsageError
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
    again = "factory tests.agents.test_own_models:late_actor, .*: pass this factory again"
    np.testing.assert_allclose(policy.actor.model(observation[np.newaxis]), acted, 1e-5)

    def edited(observation_space: Any, action_space: Any) -> Any:
        return sequential_actor(observation_space, action_space)

    edited.__module__, edited.__qualname__ = late_actor.__module__, late_actor.__qualname__
    message = r"with actor factory .*: trained .* shape \(8,\) in .* missing in this network"
    with pytest.raises(UsageError, match=message):
        train(actor=edited, steps=300)
    with pytest.raises(RunError, match="cannot be loaded: the actor was created .* " + again):
        load_policy(tmp_path / "run", "latest")
    with pytest.raises(RunError, match=again):
        train(steps=300)
    with pytest.raises(RunError, match=r"--actor: the run has factory .*late_actor, you gave "):
        train(actor=sequential_actor, steps=300)


def test_a_factory_given_by_name_is_imported_on_load(train: TrainRun, tmp_path: Path) -> None:
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
def test_settings_of_replaced_networks_are_rejected(
    tmp_path: Path, agent: str, settings: dict, idle: dict
) -> None:
    with pytest.raises(
        RunError, match=f"{next(iter(idle))} has an effect only for built-in networks"
    ):
        open_run(tmp_path / "run", agent, settings | idle | {"env": "Pendulum-v1"})


def test_settings_of_the_remaining_networks_are_accepted(tmp_path: Path) -> None:
    settings = {"env": "Pendulum-v1", "actor": late_actor, "activation": "tanh"}
    run = open_run(tmp_path / "run", "td3", settings)
    assert run.agent_config.activation == "tanh"  # the built-in critics use it


def test_an_incompatible_model_is_rejected_before_anything_is_written(
    train: TrainRun, tmp_path: Path
) -> None:
    with pytest.raises(RunError, match=r"the actor .* cannot be called with float32 observation"):
        train(models=sharing, agent="ddpg")  # these models need observations with 4 values
    assert not (tmp_path / "run").exists()
