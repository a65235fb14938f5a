"""The built-in and custom classes that build actors and critics."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from eagerly import TD3, TD3Config
from eagerly.agents.builder import ModelBuilder
from eagerly.agents.modules import Module, Modules
from eagerly.networks import Critic
from eagerly.networks.custom import CustomActor, CustomCritic
from tests.helpers import spaces

pytestmark = pytest.mark.usefixtures("unoptimized")

SMALL = {"hidden_sizes": (8,)}


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_a_policy_actor_starts_with_the_weights_of_the_trained_actor(memory: str) -> None:
    config = TD3Config(memory=memory, normalize_observations=True, **SMALL)
    agent = TD3(*spaces(3, 2), config, seed=4)
    alone = TD3.Builder(config, *spaces(3, 2), seed=4).policy_actor()
    assert [v.path for v in alone.variables] == [v.path for v in agent.actor.network.variables]
    for one, other in zip(alone.get_weights(), agent.actor.network.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


class Bare(TD3):
    """An algorithm with one-layer networks, regardless of the settings."""

    def build(self, builder: ModelBuilder) -> Modules:
        rate, modules = self.config.actor_learning_rate, []
        sizes = builder.observations.size, builder.actions.size
        for name, inputs, outputs in (("actor", *sizes), ("critic", sum(sizes), 1)):
            layers = [keras.Input((inputs,)), keras.layers.Dense(outputs, name="only")]
            optimizer = builder.rates.optimizer(rate, f"{name}_optimizer")
            modules.append(Module(name, keras.Sequential(layers), optimizer=optimizer))
        return Modules(*modules)


@pytest.mark.parametrize(
    "settings",
    [
        {"normalize_observations": True},
        {"hidden_sizes": (8,)},
        {"critic_learning_rate": 1e-3},
        {"precision": "float64"},
    ],
)
def test_a_setting_that_a_custom_build_ignores_is_rejected(settings: dict[str, Any]) -> None:
    (name,) = settings
    with pytest.raises(ValueError, match=f"{name} has no effect, because Bare builds its networks"):
        Bare(*spaces(), **settings)
    assert Bare(*spaces(), actor_learning_rate=1e-3, adam_epsilon=1e-7).config.tau == 0.005


class InFloat32(ModelBuilder):
    """Builds Keras models, whose layers compute in float32."""

    def actor(self, name: str = "actor", encoder: Any = None) -> CustomActor:
        layers = [keras.Input((4,)), keras.layers.Dense(2, "tanh", name="only")]
        return CustomActor(keras.Sequential(layers), name=name, **self.custom_arguments())

    def critic(self, name: str = "critic", encoder: Any = None) -> CustomCritic:
        layers = (
            [keras.Input((6,)), keras.layers.Dense(1, name="only")]
            for _ in range(self.config.n_critics)
        )
        models = map(keras.Sequential, layers)
        return CustomCritic(models, self.config.n_critics, name=name, **self.custom_arguments())


class Low(TD3):
    Builder = InFloat32


def test_mixed_precision_that_no_network_uses_is_rejected() -> None:
    with pytest.raises(ValueError, match="precision has no effect, because Low builds"):
        Low(*spaces(), precision="mixed_bfloat16", n_critics=1)
    Low(*spaces(), precision="float64", n_critics=1)  # inputs and outputs have this dtype
    custom = dict.fromkeys(("actor", "critic"), "module:factory")
    with pytest.raises(ValueError, match="only with float64, or for built-in networks; got custom"):
        TD3Config(precision="mixed_bfloat16", **custom).check_effect(["precision"])
    TD3Config(precision="float64", **custom).check_effect(["precision"])


class WithDeepCritics(ModelBuilder):
    """Builds critics with one more layer than the actor."""

    def critic(self, name: str = "critic", encoder: Any = None) -> Critic:
        sizes = {"hidden_sizes": (*self.config.hidden_sizes, 5)}
        parts = self.config.networks() | self.config.critics() | sizes
        return Critic(self.observations.size, self.actions.size, seed=self.seed, name=name, **parts)


class Deep(TD3):
    Builder = WithDeepCritics


def test_an_algorithm_can_use_a_custom_builder() -> None:
    agent = Deep(*spaces(3, 2), TD3Config(**SMALL), seed=4)
    for critic in (agent.critic.network, agent.critic.target):
        assert (2, 8, 5) in [tuple(variable.shape) for variable in critic.variables]
    assert len(agent.actor.network.variables) == 4
