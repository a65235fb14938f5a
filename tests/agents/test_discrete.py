"""Discrete choices: sampling, gradients and action masks."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple

from eagerly.agents import agent_class, agent_names, config_class
from eagerly.agents.agent import Agent
from eagerly.agents.outputs import Mixed
from eagerly.buffers import Transition, replay_buffer
from eagerly.networks.actor import scores as scores_of
from eagerly.policies import Episodes
from eagerly.policies.heads import ActionHead
from eagerly.spaces.actions import INVALID
from tests.helpers import equal_weights, restore_networks, weights_of

pytestmark = pytest.mark.usefixtures("unoptimized")

MODES = ("eager", "graph")
OBSERVED = Box(-1, 1, (3,))
# Agents that support discrete actions.
NAMES = [
    pytest.param(name, marks=pytest.mark.long if name == "td3_bc" else ())
    for name in agent_names()
    if "gumbel_temperature" in config_class(name).SETTINGS
]
MIXED = Tuple([Discrete(3), Box(-1, 1, (2,)), MultiDiscrete([2, 2])])


def agent_of(name: str, action_space: gymnasium.Space[Any], **settings: Any) -> Agent:
    kind = agent_class(name)
    small = {"hidden_sizes": (8,), "batch_size": 16, "mode": "eager"}
    small |= {"normalize_observations": False} | settings
    return kind(OBSERVED, action_space, kind.Config(**small), seed=0)


def filled(agent: Agent, seed: int = 0, invalid: int | None = None) -> Any:
    """Returns a buffer of random transitions, in which no action mask allows `invalid`."""
    draws = np.random.default_rng(seed)
    observations, actions = agent.observations, agent.actions
    buffer = replay_buffer(agent.layout, 200, seed=seed)
    mask = np.ones((50, observations.masked), np.float32)
    if invalid is not None:
        mask[:, invalid] = 0

    def seen() -> np.ndarray:
        rows = draws.normal(size=(50, observations.size)).astype(np.float32)
        if observations.masked:
            rows[:, -observations.masked :] = mask
        return rows

    taken = actions.random(draws, 50, mask if observations.masked else None)
    before = seen()
    buffer.add(Transition(before, taken, draws.normal(size=50), np.full(50, 0.9), seen()))
    return buffer


# --- scores -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("masked", [True, False])
def test_scores_are_log_probabilities_of_the_valid_choices(dtype: str, masked: bool) -> None:
    head = ActionHead(1, (3, 2), 5 if masked else 0)
    outputs = np.array([[0.3, 1.0, 2.0, 3.0, -1.0, 0.5], [9.0, 0, 0, 0, 1e-3, 0]], dtype)
    mask = np.array([[1, 0, 1, 1, 1], [0, 1, 0, 1, 0]], dtype)
    observation = np.concatenate([np.zeros((2, 4), dtype), mask], axis=1)
    scores = scores_of(head, tf.constant(outputs), tf.constant(observation)).numpy()
    np.testing.assert_allclose(scores[:, 0], np.tanh(outputs[:, 0]), rtol=1e-6)
    valid = mask.astype(bool) if masked else np.ones((2, 5), bool)
    for start, stop in ((1, 4), (4, 6)):
        powers = np.where(valid[:, start - 1 : stop - 1], np.exp(outputs[:, start:stop]), 0)
        np.testing.assert_allclose(
            np.exp(scores[:, start:stop]), powers / powers.sum(1, keepdims=True), rtol=1e-5
        )
    assert (scores[:, 1:][~valid] == INVALID).all()
    # Invalid choices have a probability of exactly 0.
    assert not np.exp(scores[:, 1:].astype(dtype)[~valid]).any()
    np.testing.assert_allclose(head.scores(outputs, observation), scores, rtol=1e-5)


@pytest.mark.parametrize("masked", [True, False])
def test_huge_logits_neither_overflow_nor_become_nan(masked: bool) -> None:
    head = ActionHead(0, (3,), 3 if masked else 0)
    mask = np.array([[1, 1, 1], [0, 1, 1], [1, 0, 0]], np.float32)
    logits = tf.Variable([[1000.0, -1000.0, 0.0], [1000.0, -1000.0, 0.0], [-1000.0, 1000.0, 0.0]])
    with tf.GradientTape() as tape:
        scores = scores_of(head, logits, tf.constant(mask))
        total = tf.reduce_sum(tf.exp(scores) * [1.0, 2.0, 3.0])
    assert np.isfinite(scores).all()
    assert np.isfinite(tape.gradient(total, logits)).all()
    np.testing.assert_allclose(tf.reduce_sum(tf.exp(scores), axis=1), 1.0)
    np.testing.assert_allclose(head.scores(logits.numpy(), mask), scores, atol=1e-6)
    if masked:
        assert (scores.numpy()[mask == 0] == INVALID).all()


# --- exploration ------------------------------------------------------------------------------


def test_exploration_mixes_sampled_and_uniform_choices() -> None:
    agent = agent_of("td3", Discrete(3), exploration_epsilon=0.3)
    shares = np.array([0.7, 0.3, 0.0])
    scores = np.where(shares > 0, np.log(np.maximum(shares, 1e-9)), INVALID).astype(np.float32)
    drawn = agent.behavior().exploration.explored(np.tile(scores, (20_000, 1)))
    expected = 0.7 * shares + 0.3 * np.array([0.5, 0.5, 0])
    np.testing.assert_allclose(drawn.mean(axis=0), expected, atol=0.02)
    assert not drawn[:, 2].any()


def test_each_choice_is_explored_independently() -> None:
    agent = agent_of("td3", MultiDiscrete([2, 2]), exploration_epsilon=0.5)
    scores = np.tile(np.log(np.float32([0.999, 0.001, 0.999, 0.001])), (20_000, 1))
    drawn = agent.behavior().exploration.explored(scores)
    first, second = drawn[:, 0], drawn[:, 2]
    shares = [first.mean(), second.mean(), (first * second).mean()]
    one = 0.5 * 0.999 + 0.5 * 0.5
    np.testing.assert_allclose(shares, [one, one, one**2], atol=0.02)


# --- learning ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "space"),
    [
        pytest.param("td3", MIXED, id="td3-mixed"),
        pytest.param("ddpg", Discrete(3), id="ddpg-discrete", marks=pytest.mark.long),
        pytest.param("td3", Discrete(3), id="td3-discrete", marks=pytest.mark.long),
        pytest.param("ddpg", MIXED, id="ddpg-mixed", marks=pytest.mark.long),
    ],
)
def test_modes_agree_and_a_restored_agent_continues_identically(
    name: str, space: gymnasium.Space[Any], tmp_path: Any
) -> None:
    # With this delay, TD3 compiles one program instead of two.
    more = {"policy_delay": 1} if name == "td3" else {}
    agents = {m: agent_of(name, space, mode=m, precision="float64", **more) for m in MODES}
    for agent in agents.values():
        metrics = agent.train(filled(agent), 4)
        assert all(np.isfinite(values).all() for values in metrics.values())
    eager, compiled = (weights_of(each) for each in agents.values())
    for path, values in eager.items():
        np.testing.assert_allclose(values, compiled[path], rtol=1e-9, atol=1e-12)
    agents["eager"].checkpoint.write(str(tmp_path / "n"))
    again = agent_of(name, space, mode="eager", precision="float64", **more)
    restore_networks(again, str(tmp_path / "n"))
    for one in (agents["eager"], again):
        one.train(filled(one, seed=1), 2)
    assert equal_weights(weights_of(agents["eager"]), weights_of(again))


@pytest.mark.parametrize("memory", ["gru", pytest.param("attention", marks=pytest.mark.long)])
def test_recurrent_agents_support_discrete_actions(
    memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"memory": memory, "memory_units": 8, "sequence_length": 4}
    settings |= {"batch_size": 256, "sequences_per_update": 3}
    agent = agent_of("td3", MIXED, **settings)
    draws, actions = np.random.default_rng(0), agent.actions
    buffer = replay_buffer(agent.layout, 100, seed=0)
    mask = np.tile(np.array([[1, 0, 1, 1, 0, 1, 1]], np.float32), (2, 1))
    now = np.concatenate([draws.normal(size=(2, 3)).astype(np.float32), mask], axis=1)
    behavior = agent.behavior()
    for step in range(12):
        taken = behavior.act(now)
        assert not taken[:, actions.continuous :][mask == 0].any()
        then = np.concatenate([draws.normal(size=(2, 3)).astype(np.float32), mask], axis=1)
        ended = np.array([step == 5, False])
        buffer.add(Transition(now, taken, np.ones(2), np.full(2, 0.9), then), ended)
        behavior.observe(np.ones(2), ended)
        now = then
    penalty, masks = Mixed.penalty, []

    def noted(outputs: Mixed, scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        masks.append(mask.numpy())
        return penalty(outputs, scores, mask)

    monkeypatch.setattr(Mixed, "penalty", noted)
    metrics = agent.train(buffer, 2)
    assert all(np.isfinite(values).all() for values in metrics.values())
    (mask,) = masks  # of the only update of the actor
    assert mask.any()
    assert not mask.all()  # leaves out padding


@pytest.mark.parametrize("name", NAMES)
def test_a_choice_that_is_never_valid_is_neither_trained_nor_taken(name: str) -> None:
    agent = agent_of(name, Discrete(3), exploration_epsilon=0.5)
    kernel, bias = agent.actor.network.variables[-2:]
    agent.train(filled(agent, invalid=1), 6)
    before = kernel.numpy()[:, 1].copy(), bias.numpy()[1].copy()
    agent.train(filled(agent, invalid=1), 6)
    np.testing.assert_array_equal(kernel.numpy()[:, 1], before[0])
    np.testing.assert_array_equal(bias.numpy()[1], before[1])
    rows = np.concatenate([np.random.default_rng(0).normal(size=(500, 3)), [[1, 0, 1]] * 500], 1)
    for act in (agent.act, agent.behavior().act):
        taken = act(rows.astype(np.float32))
        assert not taken[:, 1].any()
        assert (taken.sum(axis=1) == 1).all()


@pytest.mark.parametrize("name", NAMES)
def test_gradient_settings_have_an_effect(name: str) -> None:
    after = []
    for settings in ({}, {"gumbel_temperature": 2.0}, {"logit_penalty": 2.0}):
        agent = agent_of(name, MIXED, **settings)
        agent.train(filled(agent), 2)
        after.append(weights_of(agent))
    for changed in after[1:]:
        assert not equal_weights(after[0], changed)


def test_action_masks_can_be_disabled() -> None:
    agent = agent_of("td3", Discrete(3), action_masks=False)
    assert agent.layout.observation_size == 3
    assert agent_of("td3", Discrete(3)).layout.observation_size == 6


@pytest.mark.parametrize(
    "settings",
    [
        {"exploration_epsilon": 0.2},
        {"gumbel_temperature": 0.5},
        {"logit_penalty": 0.0},
        {"action_masks": False},
    ],
)
def test_discrete_action_settings_are_rejected_for_continuous_actions(
    settings: dict[str, Any],
) -> None:
    with pytest.raises(
        ValueError, match=f"{next(iter(settings))} has an effect only for discrete actions; got"
    ):
        agent_of("td3", Box(-1, 1, (2,)), **settings)


def test_dict_observations_are_flattened_into_one_row() -> None:
    space = Dict({"where": Box(-1, 1, (2,)), "what": Discrete(4)})
    kind = agent_class("td3")
    agent = kind(space, Box(-1, 1, (2,)), kind.Config(hidden_sizes=(8,), mode="eager"))
    assert agent.layout.observation_size == 6
    row = agent.observations.flatten({"where": np.zeros(2, np.float32), "what": 2})
    assert agent.act(row[np.newaxis]).shape == (1, 2)


def test_the_recurrent_state_does_not_depend_on_the_mask() -> None:
    memory = {"memory": "lstm", "memory_units": 8, "sequence_length": 4}
    found = []
    for mask in ([1, 1, 1, 1], [1, 1, 0, 0]):
        agent = agent_of("td3", Discrete(4), **memory, sequences_per_update=3, batch_size=256)
        row = np.concatenate([np.ones(3), mask])[np.newaxis].astype(np.float32)
        scores = Episodes(agent.policy, 1).act(row)
        found.append(scores[0, :2] - scores[0, 0])
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    "settings",
    [{"exploration_noise": 0.3}, {"exploration": "ornstein_uhlenbeck"}, {"target_noise": 0.5}],
)
def test_continuous_noise_settings_are_rejected_for_discrete_actions(
    settings: dict[str, Any],
) -> None:
    with pytest.raises(
        ValueError, match=f"{next(iter(settings))} has an effect only for continuous actions; got"
    ):
        agent_of("td3", Discrete(3), **settings)
