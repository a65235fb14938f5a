"""DDPG compared with a NumPy reference, and its parts compared with hand calculations.

Tests that apply to all agents are in test_conformance.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from eagerly import DDPG, DDPGConfig, ReplayBuffer, Transition
from tests.agents import reference_ddpg
from tests.agents.reference import difference, network_of
from tests.helpers import filled_buffer, small_agent, spaces, weights_of

pytestmark = pytest.mark.usefixtures("unoptimized")

ARTICLE = {**DDPGConfig.PRESETS["article"], "hidden_sizes": (16, 12), "batch_size": 32}
LILLICRAP = {**DDPGConfig.PRESETS["lillicrap"], "hidden_sizes": (16, 12), "batch_size": 32}


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"hidden_sizes": (16, 16), "batch_size": 32}, marks=pytest.mark.long),
        ARTICLE,
        {**LILLICRAP, "action_layer": 2, "critic_l2": 0.3, "tau": 0.3},
    ],
    ids=["our", "article", "lillicrap, action at the last layer"],
)
def test_it_equals_a_numpy_ddpg_over_100_updates_in_float64(settings: dict[str, Any]) -> None:
    mode = "xla" if settings == ARTICLE else "graph"
    agent = small_agent("ddpg", precision="float64", mode=mode, **settings)
    actor, critic, config = agent.actor, agent.critic, agent.config
    twin = reference_ddpg.ReferenceDDPG(
        network_of(actor.network.variables),
        network_of(critic.network.variables, 0),
        # Keras stores learning rates as float32, regardless of the precision of variables.
        actor_rate=float(np.float32(config.actor_learning_rate)),
        critic_rate=float(np.float32(config.critic_learning_rate)),
        epsilon=config.adam_epsilon,
        tau=config.tau,
        join=config.action_layer,
        l2=config.critic_l2,
    )
    buffer, again = filled_buffer(500), filled_buffer(500)
    for update in range(1, 101):
        agent.train(buffer, 1)
        twin.update(*(part[0].astype(np.float64) for part in again.sample(1, 32)))
        diverged = difference(
            {
                "actor": (network_of(actor.network.variables), twin.actor),
                "critic": (network_of(critic.network.variables, 0), twin.critic),
                "actor_target": (network_of(actor.target.variables), twin.actor_target),
                "critic_target": (network_of(critic.target.variables, 0), twin.critic_target),
            }
        )
        assert diverged is None, f"diverged in update {update}: {diverged}"


def constant_ddpg(**settings: Any) -> DDPG:
    """Returns an agent with linear networks and constant weights, for calculations by hand."""
    config = DDPGConfig(hidden_sizes=(), batch_size=1, mode="eager", **settings)
    agent = DDPG(*spaces(1, 1), config, seed=0)
    for model, weights in (
        (agent.actor.network, [[[0.0]], [0.0]]),
        (agent.actor.target, [[[0.0]], [0.0]]),
        (agent.critic.network, [[[[1.0], [2.0]]], [[0.0]]]),
        (agent.critic.target, [[[[1.0], [2.0]]], [[0.0]]]),
    ):
        model.set_weights([np.array(w, np.float32) for w in weights])
    return agent


def one_transition(discount: float = 0.5) -> ReplayBuffer:
    buffer = ReplayBuffer(1, 1, 1)
    row = np.array([3.0]), np.array([0.5]), np.array(10.0), np.array(discount), np.array([4.0])
    buffer.add(Transition(*(part[np.newaxis] for part in row)))
    return buffer


def test_losses_equal_hand_calculations() -> None:
    metrics = constant_ddpg().train(one_transition(), 1)
    # The next action is tanh(0) = 0, and its value is 1*4 + 2*0 = 4.
    target, value = 10 + 0.5 * 4, 3 + 2 * 0.5
    assert metrics["values/target_mean"][0] == target
    assert metrics["losses/critic"][0] == (value - target) ** 2
    terminated = constant_ddpg().train(one_transition(discount=0.0), 1)
    assert terminated["values/target_mean"][0] == 10


def test_the_loss_includes_the_penalty_of_weights_and_biases() -> None:
    agent = constant_ddpg(critic_l2=0.5)
    agent.critic.network.set_weights([np.array([[[1.0], [2.0]]]), np.array([[3.0]])])
    plain = (3 + 2 * 0.5 + 3 - (10 + 0.5 * 4)) ** 2
    metrics = agent.train(one_transition(), 1)
    assert metrics["losses/critic"][0] == plain + 0.5 / 2 * (1 + 4 + 9)


def test_the_penalty_has_the_gradient_of_weight_decay() -> None:
    # PyTorch's Adam(weight_decay=c) adds c w to the gradient of every weight and bias.
    critic = DDPG(*spaces(), DDPGConfig(**ARTICLE)).critic.network
    for variable in critic.variables:
        variable.assign(np.random.default_rng(0).normal(size=variable.shape))
    with tf.GradientTape() as tape:
        penalty = tf.add_n(critic.losses)
    gradients = tape.gradient(penalty, critic.trainable_variables)
    assert len(critic.trainable_variables) == 6  # the critic has three kernels and three biases
    for variable, gradient in zip(critic.trainable_variables, gradients, strict=True):
        np.testing.assert_allclose(gradient, 1e-2 * variable.numpy(), rtol=1e-6)
    squares = sum((v.numpy().astype(np.float64) ** 2).sum() for v in critic.variables)
    np.testing.assert_allclose(penalty, 0.5e-2 * squares, rtol=1e-5)


def test_every_update_changes_all_networks_and_targets() -> None:
    agent, buffer = small_agent("ddpg"), filled_buffer()
    for _ in range(3):
        before = weights_of(agent)
        metrics = agent.train(buffer, 1)
        after = weights_of(agent)
        moved = {n.partition(":")[0] for n in before if not np.array_equal(before[n], after[n])}
        assert moved == {
            *("actor", "actor_target", "actor_optimizer"),
            *("critic", "critic_target", "critic_optimizer"),
            "updates",
        }
        assert {len(values) for values in metrics.values()} == {1}


def test_the_action_joins_the_second_critic_layer_in_the_article_preset() -> None:
    agent = DDPG(*spaces(17, 6), DDPGConfig(**DDPGConfig.PRESETS["article"]))
    actor, critic = agent.actor.network, agent.critic.network
    assert [tuple(v.shape) for v in critic.variables[::2]] == [
        (1, 17, 400),
        (1, 400 + 6, 300),
        (1, 300, 1),
    ]
    assert [tuple(v.shape) for v in actor.variables[::2]] == [(17, 400), (400, 300), (300, 6)]


def test_the_lillicrap_preset_initializes_last_layers_small_and_others_by_fan_in() -> None:
    agent = DDPG(*spaces(17, 6), DDPGConfig(**DDPGConfig.PRESETS["lillicrap"]))
    actor, critic = agent.actor.network, agent.critic.network
    for model, inputs in ((actor, (17, 400)), (critic, (17, 406))):
        *hidden, last_kernel, last_bias = (v.numpy() for v in model.variables)
        for values in (last_kernel, last_bias):
            assert np.abs(values).max() <= 3e-3
        assert np.abs(last_kernel).max() > 2.5e-3
        for fan_in, kernel, bias in zip(inputs, hidden[::2], hidden[1::2], strict=True):
            limit = 1 / np.sqrt(fan_in)
            for values in (kernel, bias):
                assert 0.9 * limit < np.abs(values).max() <= limit


def test_the_first_preset_is_the_default() -> None:
    assert DDPGConfig(**DDPGConfig.PRESETS["our"]) == DDPGConfig()


def test_an_action_layer_beyond_the_last_layer_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"action_layer must be at most .* 2; got 3"):
        DDPGConfig(action_layer=3)
