"""Tests which sampler, accumulator and critic loss an agent's replay settings select."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import tensorflow as tf

from eagerly import TD3, Collector, TD3Config
from eagerly.agents import losses
from eagerly.agents.inputs import Batch
from eagerly.agents.replay_factory import huber
from eagerly.buffers import LAPSampler, NStep, OneStep, ProportionalSampler, UniformSampler
from tests.helpers import random_transitions, small_agent

pytestmark = pytest.mark.usefixtures("unoptimized")

SEED = np.random.SeedSequence(0)


def test_settings_select_sampler_accumulator_and_loss() -> None:
    plain = small_agent("td3")
    assert type(plain.sampler(SEED)) is UniformSampler
    assert type(plain.accumulator()) is OneStep
    prioritized = small_agent("ddpg", sampling="prioritized", n_step=3)
    assert type(prioritized.sampler(SEED)) is ProportionalSampler
    assert type(prioritized.accumulator()) is NStep
    lap = small_agent("td3", sampling="lap")
    assert type(lap.sampler(SEED)) is LAPSampler
    values, target = tf.constant([[0.5, 3.0]]), tf.zeros(2)
    assert float(plain.critic_loss(values, target)) == (0.25 + 9) / 2
    assert float(lap.critic_loss(values, target)) == (0.125 + 2.5) / 2


def test_exponents_and_correction_come_from_the_settings() -> None:
    sampler: Any = small_agent(
        "td3",
        sampling="prioritized",
        prioritized_exponent=1.0,
        prioritized_correction=0.5,
        prioritized_correction_updates=1,
    ).sampler(SEED)
    sampler.added(np.arange(2))
    sampler.feedback(np.array([[0, 1]]), {"td_error": np.array([[1.0, 4.0]], np.float32)})
    sampler.draw(2, (2, 2))
    weights = sampler.weights(np.array([[0, 1], [0, 1]]))
    np.testing.assert_allclose(weights, [[1, 0.5], [1, 0.25]], rtol=1e-5)
    lap: Any = small_agent("td3", sampling="lap", lap_exponent=0.5).sampler(SEED)
    assert lap.priority_of(np.array([0.5, 9.0])).tolist() == [1, 3]


def test_the_huber_loss_is_quadratic_up_to_one_and_linear_beyond() -> None:
    values = tf.Variable([[0.5, -1.0, 3.0, -4.0]])
    with tf.GradientTape() as tape:
        loss = losses.critic_loss(values, tf.zeros(4), loss=huber)
    assert float(loss) == (0.125 + 0.5 + 2.5 + 3.5) / 4
    np.testing.assert_allclose(tape.gradient(loss, values), [[0.125, -0.25, 0.25, -0.25]])


def test_the_huber_loss_applies_weights_and_masks() -> None:
    values, target = tf.constant([[0.5, 3.0, 9.0]]), tf.zeros(3)
    mask, weight = tf.constant([True, True, False]), tf.constant([2.0, 1.0, 1.0])
    assert float(losses.critic_loss(values, target, mask, weight, huber)) == (0.25 + 2.5) / 2


def test_lap_has_the_same_expected_gradient_as_pal_with_uniform_sampling() -> None:
    """Tests the equivalence of LAP and PAL, which Fujimoto et al. 2020 prove."""
    random, exponent = np.random.default_rng(0), 0.4
    td_error = random.normal(size=64) * 3
    values = tf.Variable(td_error[np.newaxis])
    sampler = LAPSampler(exponent=exponent)
    sampler.added(np.arange(64))
    every = np.arange(64)[np.newaxis]
    sampler.feedback(every, {"td_error": np.abs(td_error)[np.newaxis].astype(np.float32)})
    chances = sampler.priorities() / sampler.priorities().sum()
    with tf.GradientTape() as tape:
        # The weight of a row is its expected count in a batch.
        weight = tf.constant(64 * chances, tf.float64)
        loss = losses.critic_loss(values, tf.zeros(64, tf.float64), None, weight, huber)
    expected = tape.gradient(loss, values)
    with tf.GradientTape() as tape:
        size = tf.abs(values)
        beyond = tf.maximum(size, 1.0)
        each = tf.where(size <= 1, 0.5 * size**2, beyond ** (1 + exponent) / (1 + exponent))
        pal = tf.reduce_mean(each) / tf.reduce_mean(tf.stop_gradient(beyond**exponent))
    np.testing.assert_allclose(expected, tape.gradient(pal, values), rtol=1e-5)
    drawn = np.bincount(sampler.draw(64, (500, 64)).ravel(), minlength=64) / 32_000
    np.testing.assert_allclose(drawn, chances, atol=0.004)


@pytest.mark.parametrize("name", ["td3", "ddpg"])
@pytest.mark.parametrize("sampling", ["prioritized", "lap"])
def test_td_errors_of_a_call_become_priorities(name: str, sampling: str) -> None:
    agent = small_agent(name, sampling=sampling)
    buffer = agent.replay_buffer(1000)
    buffer.add(random_transitions(200))
    sampler: Any = buffer.sampler
    before = sampler.priorities()
    assert np.ptp(before) == 0
    agent.train(buffer, 4)
    changed = np.flatnonzero(sampler.priorities() != before)
    assert 0 < len(changed) <= 32


@pytest.mark.parametrize("name", ["ddpg", "td3", "td3_bc"])
def test_priorities_are_the_largest_absolute_td_errors_of_the_critics(name: str) -> None:
    agent = small_agent(name, precision="float64")
    batch = Batch(*(tf.constant(part, tf.float64) for part in random_transitions(8)))
    values, target = agent.critic(batch.observation, batch.action), np.linspace(-2, 2, 8)
    _, found = agent.critic_step(batch, tf.constant(target))
    np.testing.assert_allclose(found, np.abs(values - target).max(axis=0), rtol=1e-12)


class Chain(gymnasium.Env[Any, Any]):
    """A chain of five one-hot states. Actions have no effect, and the last state terminates."""

    REWARDS = (1.0, -2.0, 3.0, 0.5, 2.0)
    observation_space = gymnasium.spaces.Box(0, 1, (5,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place = 0
        return np.eye(5, dtype=np.float32)[0], {}

    def step(self, action: Any) -> Any:
        reward, self.place = self.REWARDS[self.place], self.place + 1
        seen = np.eye(5, dtype=np.float32)[min(self.place, 4)]
        return seen, reward, self.place == 5, False, {}


@pytest.mark.parametrize(
    "settings",
    [{"n_step": 3, "sampling": "lap"}, {"n_step": 2, "sampling": "prioritized"}],
)
def test_values_of_a_chain_converge_to_the_exact_ones(settings: dict[str, Any]) -> None:
    discount = 0.8
    config = TD3Config(
        hidden_sizes=(32,), batch_size=16, mode="graph", tau=0.1, critic_learning_rate=3e-3,
        discount=discount, policy_delay=1,
        **settings,
    )  # fmt: skip
    agent = TD3(Chain.observation_space, Chain.action_space, config)
    buffer = agent.replay_buffer(1000)
    collector = Collector.make(agent, Chain, buffer, warmup_steps=500)
    for _ in range(200):
        collector.collect()
    for _ in range(16):
        agent.train(buffer, 50)
    exact = [
        sum(discount**k * reward for k, reward in enumerate(Chain.REWARDS[place:]))
        for place in range(5)
    ]
    found = agent.critic.network(np.eye(5, dtype=np.float32), np.zeros((5, 1), np.float32))
    np.testing.assert_allclose(found, [exact] * 2, rtol=0.02)


@pytest.mark.parametrize("setting", [{"n_step": 2}, {"sampling": "lap"}, {"hindsight": "final"}])
def test_recurrent_agents_reject_replay_settings(setting: dict[str, Any]) -> None:
    with pytest.raises(
        ValueError, match=r"has an effect only with --memory none; got --memory gru"
    ):
        small_agent("td3", memory="gru", **setting)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"lap_exponent": 1.0}, "with --sampling lap; got --sampling uniform"),
        ({"prioritized_correction": 1.0, "sampling": "lap"}, "with --sampling prioritized; got"),
        ({"hindsight_goals": 2, "hindsight": "final"}, "with --hindsight future or episode; got"),
    ],
)
def test_a_setting_without_effect_is_rejected(setting: dict[str, Any], message: str) -> None:
    config = TD3Config(**setting)
    with pytest.raises(ValueError, match=message):
        config.check_effect(config.changed())


def test_replay_settings_are_rejected_for_images_and_without_goals() -> None:
    image = gymnasium.spaces.Box(0, 255, (8, 8, 1), np.uint8)
    action = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    for setting in ({"n_step": 2}, {"sampling": "lap"}):
        with pytest.raises(
            ValueError, match="has an effect only for observations without images; got"
        ):
            TD3(image, action, TD3Config(**setting))
    with pytest.raises(ValueError, match="has an effect only for dictionary observations in which"):
        TD3(Chain.observation_space, action, TD3Config(hindsight="final"))
