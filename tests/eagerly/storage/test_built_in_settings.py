"""Custom agents whose actors are built in: their policies need no import of the agent."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from eagerly import TD3, Trainer, load_policy, open_run
from eagerly.agents.builder import ModelBuilder
from eagerly.agents.td3_config import TD3Config
from eagerly.networks import Actor
from eagerly.policies.numpy_actor import NumpyActor
from eagerly.storage.built_in_settings import describing_class
from eagerly.storage.loading import policy_of
from tests.algorithms.test_algorithms import ALGORITHMS, CROSSQ
from tests.helpers import small_agent, spaces
from tests.small_runs import SMALL

HUBER = "tests.algorithms.huber:HuberTD3"


@pytest.mark.parametrize("name", ALGORITHMS)
def test_agents_that_only_change_learning_have_a_described_actor(name: str) -> None:
    # CrossQ builds a custom actor. The other algorithms change losses, critics or modules.
    agent = small_agent(f"tests.algorithms.{name}")
    assert describing_class(agent) == (None if name == CROSSQ else "TD3Config")


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("ddpg", {}, "DDPGConfig"),
        ("td3_bc", {}, "TD3BCConfig"),
        ("td7", {}, "TD7Config"),
        ("td3", {"memory": "gru", "precision": "mixed_bfloat16"}, "TD3Config"),
    ],
)
def test_built_in_agents_are_described_by_their_own_class(
    name: str, settings: dict[str, Any], expected: str
) -> None:
    assert describing_class(small_agent(name, **settings)) == expected


class OtherActor(ModelBuilder):
    """Builds a built-in actor with another activation than the settings'."""

    def actor(self, name: str = "actor", encoder: Any = None) -> Actor:
        parts = self.config.networks() | {"activation": "tanh"}
        return Actor(self.observations.size, self.actions.size, name=name, **parts)


class Other(TD3):
    Builder = OtherActor


class Fixed(TD3Config):
    """Removes a setting whose default it changes."""

    DEFAULTS = MappingProxyType({"activation": "tanh"})
    WITHOUT = frozenset({"activation"})


class WithFixed(TD3):
    Config = Fixed


@pytest.mark.parametrize("kind", [Other, WithFixed])
def test_an_actor_that_differs_from_the_settings_is_not_described(kind: type[TD3]) -> None:
    assert describing_class(kind(*spaces(), hidden_sizes=(4,))) is None


def test_the_policy_of_a_changed_loss_is_loaded_in_numpy(tmp_path: Path) -> None:
    with Trainer(open_run(tmp_path / "run", HUBER, SMALL | {"huber_delta": 2.0})) as trainer:
        trainer.train()
    rows = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    expected = trainer.actions.to_environment(trainer.agent.act(rows))
    opened = policy_of(open_run(tmp_path / "run", None, {}), "latest")
    for policy in (load_policy(tmp_path / "run", "latest"), opened):
        assert isinstance(policy.actor, NumpyActor)  # which `export_policy` requires
        np.testing.assert_array_equal(policy(rows), expected)
