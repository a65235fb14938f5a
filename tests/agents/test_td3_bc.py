"""TD3+BC compared with a NumPy reference, and its actor step compared with hand calculations.

Tests that apply to all agents are in test_conformance.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Tuple

from eagerly.agents import td3_bc
from eagerly.agents.inputs import Batch
from eagerly.agents.td3_bc import TD3BC
from eagerly.agents.td3_bc_config import TD3BCConfig
from eagerly.agents.td3_config import TD3Config
from eagerly.agents.update_random import UpdateRandom
from eagerly.spaces import Actions, Observations
from tests.agents.reference import Gradient, backward, forward
from tests.agents.reference_td3 import ReferenceTD3
from tests.agents.test_losses import MODES
from tests.agents.test_td3 import reference_of, step_of_divergence
from tests.helpers import (
    buffer_for,
    equal_weights,
    filled_buffer,
    random_of,
    random_transitions,
    small_agent,
    spaces,
    weights_of,
)

# --- comparison with a slow NumPy TD3+BC ----------------------------------------------------


class ReferenceTD3BC(ReferenceTD3):
    """TD3 with the actor loss of TD3+BC."""

    alpha = 2.5

    def actor_gradients(self, observation: np.ndarray, action: np.ndarray) -> Gradient:
        trail = forward(self.actor, observation)
        chosen = np.tanh(trail[-1])
        values = forward(self.critics[0], observation, chosen)
        weight = self.alpha / np.abs(values[-1]).mean()
        outward = np.full_like(values[-1], -weight / len(observation))
        _, of_action = backward(self.critics[0], values, outward, action.shape[1])
        of_action = of_action + 2 * (chosen - action) / action.size
        return backward(self.actor, trail, of_action * (1 - chosen**2))[0]


@pytest.mark.parametrize(
    ("alpha", "mode", "updates"),
    [
        (0.3, "eager", 6),
        pytest.param(2.5, "graph", 100, marks=pytest.mark.long),
        pytest.param(0.7, "xla", 100, marks=pytest.mark.long),
    ],
)
def test_it_equals_a_numpy_td3_bc_in_float64(alpha: float, mode: str, updates: int) -> None:
    settings = {"precision": "float64", "batch_size": 32, "mode": mode, "bc_alpha": alpha}
    agent = small_agent("td3_bc", **settings)
    reference = reference_of(agent, ReferenceTD3BC)
    reference.alpha = alpha
    buffer, twin = filled_buffer(500), filled_buffer(500)
    for update in range(1, updates + 1):
        agent.train(buffer, 1)
        batch = [part[0].astype(np.float64) for part in twin.sample(1, 32)]
        noise = UpdateRandom(0, tf.constant(update, tf.int64), tf.float64).normal((32, 2)).numpy()
        reference.update(*batch, agent.config.target_noise * noise)
        diverged = step_of_divergence(agent, reference)
        assert diverged is None, f"diverged in update {update}: {diverged}"


# --- losses -----------------------------------------------------------------------------------


@pytest.fixture(params=MODES)
def run(request: pytest.FixtureRequest) -> Callable:
    return MODES[request.param]


def test_the_value_weight_is_alpha_over_the_mean_magnitude_of_the_values(run: Callable) -> None:
    values = tf.constant([1.0, -3.0, 8.0])
    weight = run(lambda v: td3_bc.value_weight(v, 2.0))
    assert float(weight(values)) == 2 / ((1 + 3 + 8) / 3)
    assert float(weight(tf.zeros(3))) == 0.0
    masked = run(lambda v, m: td3_bc.value_weight(v, 2.0, m))
    assert float(masked(values, tf.constant([True, True, False]))) == 2 / ((1 + 3) / 2)
    assert float(masked(values, tf.fill([3], False))) == 0.0
    with tf.GradientTape() as tape:
        tape.watch(values)
        found = td3_bc.value_weight(values, 2.0)
    assert tape.gradient(found, values) is None


def test_cloning_error_averages_over_continuous_dimensions_and_choices(run: Callable) -> None:
    shares = [[0.5, 0.25, 0.25, 0.2, 0.8], [1.0, 0.0, 0.0, 0.5, 0.5]]
    scores = [[0.0, 0.5, *np.maximum(np.log(np.maximum(row, 1e-9)), -9)] for row in shares]
    outputs = tf.Variable(scores, dtype=tf.float32)
    action = tf.constant([[1.0, -0.5, 0, 1, 0, 1, 0], [0.0, 0.5, 1, 0, 0, 0, 1]])
    boxes = run(td3_bc.cloning_error)(outputs[:, :2], action[:, :2])
    np.testing.assert_allclose(boxes, [(1 + 1) / 2, 0.0])
    choices = slice(2, 5), slice(5, 7)
    with tf.GradientTape() as tape:
        error = run(lambda o, a: td3_bc.cloning_error(o, a, choices))(outputs, action)
    # Two dimensions and two choices make four parts.
    first, second = (1 + 1 - np.log(0.25) - np.log(0.2)) / 4, (0 + 0 - np.log(1) - np.log(0.5)) / 4
    np.testing.assert_allclose(error, [first, second], rtol=1e-6)
    slopes = [[-2 / 4, 2 / 4, 0, -1 / 4, 0, -1 / 4, 0], [0, 0, -1 / 4, 0, 0, 0, -1 / 4]]
    np.testing.assert_allclose(tape.gradient(error, outputs), slopes)
    only = run(lambda o, a: td3_bc.cloning_error(o, a, [slice(0, 3)]))
    found = only(outputs[:, 2:5], action[:, 2:5])
    np.testing.assert_allclose(found, [-np.log(0.25), 0.0], rtol=1e-6)


def test_a_wrong_shape_is_rejected_before_it_broadcasts() -> None:
    with pytest.raises(ValueError, match=r"values must have shape \[B\], got \(8, 1\)"):
        td3_bc.value_weight(tf.ones((8, 1)), 2.0)
    with pytest.raises(ValueError, match=r"outputs must have shape \[B, A\], got \(8,\)"):
        td3_bc.cloning_error(tf.ones(8), tf.ones(8))
    with pytest.raises(ValueError, match=r"action must have the shape of outputs, \(8, 2\)"):
        td3_bc.cloning_error(tf.ones((8, 2)), tf.ones((8, 1)))


# --- the actor step ---------------------------------------------------------------------------


def batch_of(action: float) -> Batch:
    """Returns a batch of one transition, in which only observation and action matter."""
    none = tf.zeros(1)
    return Batch(tf.constant([[3.0]]), tf.constant([[action]]), none, none, tf.zeros((1, 1)))


@pytest.mark.parametrize(
    ("alpha", "action", "slope"),
    [
        # The actor's action is tanh(0) = 0, whose value is 3, so λ = α / 3. The slope of the value
        # with respect to the action is 2, and that of the squared error is 2 (0 - a).
        (3.0, -0.5, -1.0 * 2 + 2 * 0.5),
        (0.75, -0.5, -0.25 * 2 + 2 * 0.5),
        (0.0, -0.5, 2 * 0.5),
        (0.0, 0.5, -2 * 0.5),
    ],
)
def test_the_actor_step_equals_a_hand_calculation(
    alpha: float, action: float, slope: float
) -> None:
    settings = {"bc_alpha": alpha, "normalize_observations": False, "adam_epsilon": 1e3}
    config = TD3BCConfig(
        hidden_sizes=(), batch_size=1, mode="eager", actor_learning_rate=1e3, **settings
    )
    agent = TD3BC(*spaces(1, 1), config)
    agent.actor.network.set_weights([np.zeros((1, 1)), np.zeros(1)])
    agent.critic.network.set_weights([np.array([[[1.0], [2.0]]] * 2), np.array([[0.0], [5.0]])])
    metrics = agent.actor_step(batch_of(action), agent.outputs(random_of(agent)))
    assert float(metrics["cloning/lambda"]) == alpha / 3
    assert float(metrics["cloning/error"]) == 0.25
    assert float(metrics["losses/actor"]) == -alpha + 0.25
    # With a huge epsilon, Adam's first step is rate · √(1-β₂)/(1-β₁) · (1-β₁) g / ε = √0.001 g.
    bias = agent.actor.network.get_weights()[1]
    np.testing.assert_allclose(bias, [-np.sqrt(0.001) * slope], rtol=1e-3)


def after_actor_step(batch: Batch, **settings: Any) -> tuple[dict[str, float], dict[str, Any]]:
    agent = small_agent("td3_bc", precision="float64", **settings)
    metrics = agent.actor_step(batch, agent.outputs(random_of(agent)))
    return {name: float(value) for name, value in metrics.items()}, weights_of(agent)


def test_masked_rows_do_not_count_and_weights_apply_only_to_critics() -> None:
    rows = Batch(*(tf.constant(part, tf.float64) for part in random_transitions(8)))
    mask = tf.constant([True] * 5 + [False] * 3)
    masked = rows._replace(mask=mask, weight=tf.range(8, dtype=tf.float64))
    metrics, weights = after_actor_step(masked)
    expected, others = after_actor_step(Batch(*(part[:5] for part in rows[:5])))
    for name, value in expected.items():
        np.testing.assert_allclose(metrics[name], value, 1e-12, err_msg=name)
    for name, values in others.items():
        np.testing.assert_allclose(weights[name], values, 1e-9, 1e-12, err_msg=name)


def test_behavior_cloning_alone_ignores_rewards() -> None:
    actors = []
    for scale in (1.0, 100.0):
        agent = small_agent("td3_bc", bc_alpha=0.0, reward_scale=scale)
        agent.train(filled_buffer(), 2)
        actors.append(agent.policy_weights())
    assert equal_weights(*actors)


MIXED = Tuple([Discrete(3), Box(-1, 1, (2,)), MultiDiscrete([2, 2])])


@pytest.mark.parametrize(("space", "parts"), [(MIXED, 5), (Discrete(3), 1)])
def test_discrete_choices_are_cloned_by_cross_entropy(space: Any, parts: int) -> None:
    settings = {"hidden_sizes": (8,), "batch_size": 16, "mode": "eager", "bc_alpha": 0.0}
    settings |= {"normalize_observations": False, "logit_penalty": 0.0, "action_masks": False}
    agent = TD3BC(Box(-1, 1, (3,)), space, TD3BCConfig(**settings))
    draws, actions = np.random.default_rng(0), agent.actions
    seen = draws.normal(size=(16, 3)).astype(np.float32)
    taken, none = actions.random(draws, 16, None).astype(np.float32), np.zeros(16, np.float32)
    batch = Batch(*map(tf.constant, (seen, taken, none, none, seen)))

    def error() -> float:
        outputs = agent.actor.network(seen).numpy()
        found = np.square(outputs - taken)[:, : actions.continuous].sum(axis=1)
        for choice in actions.segments():
            right = taken[:, choice].argmax(axis=1)
            found -= np.take_along_axis(outputs[:, choice], right[:, np.newaxis], 1)[:, 0]
        return float(found.mean() / parts)

    before = error()
    metrics = agent.actor_step(batch, agent.outputs(random_of(agent)))
    np.testing.assert_allclose(metrics["cloning/error"], before, rtol=1e-5)
    np.testing.assert_allclose(metrics["losses/actor"], before, rtol=1e-5)
    assert error() < before


def test_recurrent_agents_clone_the_learned_steps_of_windows() -> None:
    settings = {"memory": "gru", "memory_units": 8, "sequence_length": 6, "burn_in": 2}
    agent = small_agent("td3_bc", policy_delay=1, sequences_per_update=5, **settings)
    buffer, twin = buffer_for(agent), buffer_for(agent)
    batch = agent.inputs.batch(tf.constant(twin.sample_rows(1, 5)[0]), tf.constant(1, tf.int64))
    errors = np.square(agent.actor.network(batch.observation) - batch.action).mean(axis=1)
    assert not batch.mask.numpy().all()
    metrics = agent.train(buffer, 1)
    np.testing.assert_allclose(metrics["cloning/error"], [errors[batch.mask].mean()], rtol=1e-5)


# --- settings ---------------------------------------------------------------------------------


def test_it_normalizes_observations_and_is_exported_like_td3() -> None:
    layouts = Observations(spaces()[0]), Actions(spaces()[1])
    expected = TD3Config(normalize_observations=True).actor_architecture(*layouts)
    assert TD3BCConfig().actor_architecture(*layouts) == expected
    other = TD3Config(normalize_observations=True).flat()
    assert TD3BCConfig().flat() == other | {"bc_alpha": 2.5}


def test_logged_data_requires_the_statistics_of_its_observations() -> None:
    config = TD3BCConfig(hidden_sizes=(8,), batch_size=8, mode="eager")
    agent, buffer = TD3BC(*spaces(), config), filled_buffer()
    with pytest.raises(ValueError, match=r"or pass logged ones to agent\.normalization\.update\("):
        agent.train(buffer, 1)
    agent.normalization.update(random_transitions(200).observation)
    agent.train(buffer, 1)
    assert agent.normalization.moments.count == 200


@pytest.mark.parametrize("alpha", [-1.0, float("nan"), "2"])
def test_an_invalid_alpha_is_rejected(alpha: Any) -> None:
    with pytest.raises(ValueError, match=r"bc_alpha must be (at least 0|of type float); got"):
        TD3BCConfig(bc_alpha=alpha)
