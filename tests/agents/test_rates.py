"""Learning-rate schedules, gradient clipping and decoupled weight decay."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from eagerly.agents.builder import ModelBuilder
from eagerly.agents.clock import Clock
from eagerly.agents.config import AgentConfig
from eagerly.agents.modules import Module, Modules
from eagerly.agents.rates import LearningRates
from eagerly.agents.td3 import TD3
from eagerly.agents.td3_config import TD3Config
from tests.helpers import filled_buffer, small_agent, spaces, weights_of

pytestmark = pytest.mark.usefixtures("unoptimized")


def rates_of(updates: int, **settings: Any) -> dict[str, np.ndarray]:
    metrics = small_agent("td3", critic_learning_rate=0.2, **settings).train(
        filled_buffer(), updates
    )
    return {name: values for name, values in metrics.items() if name.startswith("learning_rate/")}


def test_learning_rates_may_be_integers() -> None:
    agent = small_agent("td3", actor_learning_rate=1)
    assert float(agent.actor.optimizer.learning_rate) == 1.0


def test_a_linear_schedule_decays_for_actor_and_critic_and_then_stays_constant() -> None:
    settings = {"schedule": "linear", "schedule_steps": 4, "schedule_end": 0.5}
    found = rates_of(6, actor_learning_rate=0.1, policy_delay=2, **settings)
    # Update k uses the schedule's value after k - 1 updates. Within 4 updates, the learning rate
    # falls to one half.
    expected = np.array([1.0, 1 - 1 / 8, 1 - 2 / 8, 1 - 3 / 8, 0.5, 0.5])
    np.testing.assert_allclose(found["learning_rate/critic"], 0.2 * expected, 1e-6)
    np.testing.assert_allclose(found["learning_rate/actor"], 0.1 * expected, 1e-6)


@pytest.mark.parametrize("end", [0.0, 0.5])
def test_a_cosine_schedule_decays_along_half_a_cosine(end: float) -> None:
    settings = {"schedule": "cosine", "schedule_steps": 4, "schedule_end": end}
    found = rates_of(6, **settings)["learning_rate/critic"]
    falling = 0.1 * (1 + np.cos(np.pi * np.array([0, 1, 2, 3, 4, 4]) / 4))
    expected = 0.2 * end + (1 - end) * falling
    np.testing.assert_allclose(found, expected, 1e-5, 1e-8)


def test_nothing_changes_once_the_learning_rate_is_zero() -> None:
    agent, buffer = small_agent("ddpg", schedule="linear", schedule_steps=3), filled_buffer()
    agent.train(buffer, 3)
    actor = agent.actor.network.variables
    before = [variable.numpy() for variable in actor]
    agent.train(buffer, 2)
    for variable, values in zip(actor, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), values)


def test_without_a_schedule_no_learning_rate_is_reported() -> None:
    assert rates_of(1) == {}


def stepped(config: AgentConfig, gradients: list[float]) -> tuple[Any, list[float]]:
    """Applies gradients to two variables of value 1; returns the optimizer and new values."""
    rates = LearningRates(config, Clock())
    optimizer = rates.optimizer(0.125, "critic_optimizer")
    variables = [keras.Variable([1.0], name=name) for name in ("a", "b")]
    optimizer.build(variables)
    optimizer.apply([tf.constant([g]) for g in gradients], [v.value for v in variables])
    return optimizer, [float(variable.numpy()[0]) for variable in variables]


@pytest.mark.parametrize(
    ("largest", "expected"), [(1.0, [0.6, 0.8]), (10.0, [3.0, 4.0]), (0.0, [3.0, 4.0])]
)
def test_gradients_are_clipped_by_their_norm_over_all_variables(
    largest: float, expected: list[float]
) -> None:
    optimizer, _ = stepped(AgentConfig(clip_gradients=largest), [3.0, 4.0])  # a norm of 5
    # After one step, Adam's momentum is (1 - 0.9) g.
    found = [float(slot.numpy()[0]) for slot in optimizer._momentums]
    np.testing.assert_allclose(found, [0.1 * each for each in expected], 1e-6)


def test_weight_decay_is_decoupled_from_adams_step() -> None:
    _, found = stepped(AgentConfig(weight_decay=0.5), [0.0, 2.0])
    decayed = 1 - 0.125 * 0.5
    # Adam's first step has the size of the learning rate, regardless of the gradient's size.
    np.testing.assert_allclose(found, [decayed, decayed - 0.125], 1e-6)


class WithItsOwnOptimizer(TD3):
    """An algorithm whose `build` creates an optimizer without the builder."""

    def build(self, builder: ModelBuilder) -> Modules:
        actor, critic = builder.models()
        return Modules(
            Module("actor", actor, optimizer=keras.optimizers.Adam(1e-3)),
            Module("critic", critic, optimizer=builder.rates.optimizer(1e-3, "critic_optimizer")),
        )


@pytest.mark.parametrize("setting", ["clip_gradients", "weight_decay"])
def test_settings_that_do_not_reach_every_optimizer_are_rejected(setting: str) -> None:
    WithItsOwnOptimizer(*spaces())
    with pytest.raises(ValueError, match=rf"{setting} would have no effect on module 'actor': "):
        WithItsOwnOptimizer(*spaces(), TD3Config(**{setting: 0.5}))


def test_between_updates_the_learning_rate_is_that_of_the_next_one() -> None:
    agent = small_agent("td3", schedule="linear", schedule_steps=4, critic_learning_rate=0.2)
    rates = [float(agent.critic.optimizer.learning_rate)]
    for _ in range(2):
        agent.train(filled_buffer(), 1)
        rates.append(float(agent.critic.optimizer.learning_rate))
    np.testing.assert_allclose(rates, [0.2, 0.15, 0.1], 1e-6)


def test_weight_decay_is_rejected_for_variables_of_two_optimizers() -> None:
    with pytest.raises(ValueError, match="weight_decay would be applied twice to variables shared"):
        TD3Config(weight_decay=0.1, shared_gradient="both", models="a:b")


def test_schedule_settings_without_effect_are_rejected() -> None:
    with pytest.raises(ValueError, match="schedule linear requires schedule_steps"):
        AgentConfig(schedule="linear")
    with pytest.raises(
        ValueError, match="schedule_steps has an effect only with --schedule linear or"
    ):
        small_agent("td3", schedule_steps=3)
    with pytest.raises(
        ValueError, match="schedule_end has an effect only with --schedule linear or"
    ):
        small_agent("td3", schedule_end=0.5)


@pytest.mark.parametrize(
    ("mode", "schedule"),
    [
        ("graph", "cosine"),
        pytest.param("xla", "cosine", marks=pytest.mark.long),
        pytest.param("xla", "linear", marks=pytest.mark.long),
    ],
)
def test_rates_are_the_same_in_every_mode(mode: str, schedule: str) -> None:
    # The conformance tests check schedules with different divisions of updates into calls.
    settings = {"schedule": schedule, "schedule_steps": 6, "clip_gradients": 0.5}
    settings |= {"weight_decay": 0.01, "hidden_sizes": (128, 16)}
    after = []
    for each in ("eager", mode):
        agent = small_agent("ddpg", **settings, mode=each)
        agent.train(filled_buffer(), 5)
        after.append(weights_of(agent))
    for path, values in after[0].items():
        np.testing.assert_allclose(after[1][path], values, 1e-3, 1e-5, err_msg=path)
