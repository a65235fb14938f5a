"""Conversion of an actor's outputs to actions in updates: sampling and gradients."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Tuple

from eagerly.agents import agent_class
from eagerly.agents.config import AgentConfig
from eagerly.agents.inputs import Batch
from eagerly.agents.outputs import Continuous, Mixed, _gumbel
from eagerly.agents.update_random import UpdateRandom
from eagerly.spaces import Actions
from eagerly.spaces.actions import INVALID

OBSERVED = Box(-1, 1, (3,))
MIXED = Tuple([Discrete(3), Box(-1, 1, (2,)), MultiDiscrete([2, 2])])


class Drawn:
    """A replacement of `UpdateRandom` that returns fixed uniform random numbers `[2, B, A]`."""

    def __init__(self, uniform: Any) -> None:
        self._uniform = tf.constant(uniform, tf.float32)

    def uniform_pairs(self, shape: tuple[int, ...], name: str = "") -> tf.Tensor:
        assert self._uniform.shape == (2, *shape)
        return self._uniform


def mixed(space: gymnasium.Space[Any], uniform: Any, **settings: float) -> Mixed:
    """Returns the operations on an actor's outputs, with `uniform` as the random numbers."""
    rows, actions = np.shape(uniform)[1], Actions(space)
    return Mixed(Drawn(uniform), (rows, actions.size), actions, AgentConfig(**settings))


# --- sampling ---------------------------------------------------------------------------------


def test_continuous_actions_are_unchanged_or_smoothed_by_clipped_noise() -> None:
    random = UpdateRandom(0, tf.constant(1, tf.int64), tf.float32)
    outputs, scores = Continuous(random, (500, 2)), tf.fill((500, 2), 0.75)
    assert outputs.greedy(scores) is outputs.differentiable(scores) is scores
    assert outputs.penalty(scores, None) == 0.0
    smoothed = outputs.target_smoothed(scores, 10.0, 0.5).numpy()
    assert smoothed.min() == 0.25  # 0.75 - 0.5, as the noise is clipped to ±0.5
    assert smoothed.max() == 1.0
    ends = tf.constant([[1.0, -1.0], [0.5, -0.995]])
    np.testing.assert_array_equal(outputs.saturation(ends), [[True, True], [False, True]])


def test_choices_are_sampled_by_their_probabilities() -> None:
    shares = np.array([0.6, 0.3, 0.1, 0.5, 0.5, 0.9, 0.1], np.float32)
    scores = np.concatenate([[0.2, -0.3], np.log(shares)]).astype(np.float32)
    several = tf.tile(scores[np.newaxis], [20_000, 1])
    uniform = UpdateRandom(0, tf.constant(1, tf.int64), tf.float32).uniform_pairs((20_000, 9))
    outputs = mixed(MIXED, uniform)
    drawn = outputs.target_smoothed(several, 0.0, 0.0).numpy()
    np.testing.assert_allclose(drawn[:, :2], several[:, :2])
    np.testing.assert_allclose(drawn[:, 2:].mean(axis=0), shares, atol=0.02)
    np.testing.assert_array_equal(mixed(MIXED, uniform).greedy(several), drawn)
    for again in (outputs.greedy, lambda scores: outputs.target_smoothed(scores, 0.0, 0.0)):
        with pytest.raises(ValueError, match="would draw the same numbers again"):
            again(several)
    other = outputs.hard(outputs.differentiable(several)).numpy()
    np.testing.assert_allclose(other[:, 2:].mean(axis=0), shares, atol=0.02)
    same = (drawn[:, 2:5] == other[:, 2:5]).all(axis=1).mean()
    # The two samples are independent.
    np.testing.assert_allclose(same, (shares[:3] ** 2).sum(), atol=0.02)


def test_the_smallest_and_largest_uniforms_give_finite_noise() -> None:
    outputs = mixed(Discrete(2), [[[2.0**-25, 1.0]], [[1.0, 2.0**-25]]])
    scores = tf.zeros((1, 2))
    # The larger of two uniform numbers gives the larger noise. All noise is finite.
    np.testing.assert_array_equal(outputs.greedy(scores), [[0, 1]])
    relaxed = outputs.differentiable(scores)
    assert np.isfinite(relaxed).all()
    np.testing.assert_array_equal(outputs.hard(relaxed), [[1, 0]])
    assert np.isfinite(_gumbel(tf.constant([2.0**-25, 1.0]))).all()


def test_alternatives_change_one_choice_at_a_time() -> None:
    action = np.array([[0.5, -0.5, 1, 0, 0, 0, 1, 1, 0]], np.float32)
    made = mixed(MIXED, np.ones((2, 1, 9))).alternatives(tf.constant(action)).numpy()
    assert made.shape == (7, 9)
    np.testing.assert_array_equal(made[:, :2], np.repeat(action[:, :2], 7, axis=0))
    np.testing.assert_array_equal(made[:3, 2:5], np.eye(3))
    np.testing.assert_array_equal(made[:3, 5:], np.repeat(action[:, 5:], 3, axis=0))
    np.testing.assert_array_equal(made[3:5, 5:7], np.eye(2))
    np.testing.assert_array_equal(made[5:, 7:], np.eye(2))


# --- gradients --------------------------------------------------------------------------------


class Linear(tf.Module):
    """An actor with constant logits, or a critic with one constant value per choice."""

    def __init__(self, values: list[float]) -> None:
        super().__init__()
        self.values = tf.Variable([values], name="values")

    def __call__(self, observation: tf.Tensor, action: tf.Tensor | None = None) -> tf.Tensor:
        nothing = 0.0 * tf.reduce_sum(observation, axis=1, keepdims=True)
        if action is None:
            return self.values + nothing
        return tf.reduce_sum(action * self.values, axis=1) + nothing[:, 0]


@pytest.mark.parametrize("mask", [[1, 1, 1], [1, 0, 1]])
def test_the_actor_gradient_is_that_of_the_expected_value_over_choices(mask: list[int]) -> None:
    logits, values = [0.5, -0.2, 0.1], [1.0, 5.0, 2.0]
    kind = agent_class("td3")
    agent = kind(
        OBSERVED,
        Discrete(3),
        kind.Config(n_critics=1, batch_size=4, mode="eager", logit_penalty=0.0),
        actor=lambda *spaces: Linear(logits),
        critic=lambda *spaces: Linear(values),
    )
    rows = tf.constant([[0.1, 0.2, 0.3, *mask]] * 4, tf.float32)
    batch = Batch(rows, tf.zeros((4, 3)), tf.zeros(4), tf.zeros(4), rows)
    seen: list[np.ndarray] = []
    agent.actor.optimizer.apply = lambda gradients, _: seen.append(gradients[0].numpy())
    # A uniform number of exp(-1) gives a Gumbel noise of 0.
    agent.actor_step(batch, mixed(Discrete(3), np.full((2, 4, 3), np.exp(-1)), logit_penalty=0.0))
    odds = np.exp(logits) * mask
    shares = odds / odds.sum()
    expected = -shares * (values - (shares * values).sum())
    np.testing.assert_allclose(seen[0][0], expected, atol=1e-6)
    assert all(seen[0][0][index] == 0.0 for index in range(3) if not mask[index])


def test_the_penalty_is_the_mean_squared_deviation_of_valid_scores() -> None:
    outputs = mixed(MIXED, np.ones((2, 1, 9)), logit_penalty=0.1)
    scores = np.array([[0.5, -0.5, -1, INVALID, -3, -2, -2, INVALID, 0]], np.float32)
    # The valid scores of the first choice are -1 and -3, whose mean squared deviation is 1. The
    # second choice has equal scores and the third a single valid one, so their deviations are 0.
    np.testing.assert_allclose(outputs.penalty(tf.constant(scores), None), 0.1 / 3)
    two = tf.constant(np.concatenate([scores, np.zeros((1, 9), np.float32)]))
    np.testing.assert_allclose(outputs.penalty(two, None), 0.05 / 3)
    np.testing.assert_allclose(outputs.penalty(two, tf.constant([True, False])), 0.1 / 3)


class Shared:
    """Networks that share an encoder h = s w: a = tanh(h k), and q = c · (h, a) + a₁ a₂."""

    def __init__(self) -> None:
        self.w = tf.Variable([[1.0], [0.5]], name="w")
        self.k, self.c = tf.Variable([[0.5, -0.25]]), tf.Variable([[2.0], [1.0], [-1.0]])

    def score(self, observation: tf.Tensor) -> tf.Tensor:
        return tf.tanh(observation @ self.w @ self.k)

    def value(self, observation: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        known = tf.concat([observation @ self.w, action], axis=1)
        return (known @ self.c)[:, 0] + action[:, 0] * action[:, 1]


COMPILERS = {
    "eager": lambda body: body,
    "graph": tf.function,
    "xla": lambda body: tf.function(body, jit_compile=True),
}
ROWS = tf.constant([[1.0, 2.0], [0.5, -1.0], [0.0, 0.25]])


@pytest.mark.parametrize("mode", COMPILERS)
def test_the_actor_gradient_flows_only_through_the_action(mode: str) -> None:
    networks = Shared()
    outputs = Continuous(UpdateRandom(0, tf.constant(1, tf.int64), tf.float32), (3, 2))

    def through() -> Any:
        with tf.GradientTape() as tape:
            action = outputs.differentiable(networks.score(ROWS))
            values = outputs.values(networks.value, ROWS, action)
            loss = tf.reduce_sum(values * [1.0, 2.0, 3.0])
        found = tape.gradient(loss, [networks.w, networks.k, networks.c])
        assert found[2] is None  # the critic's weights c get no gradient
        return values, found[0], found[1]

    values, of_w, of_k = COMPILERS[mode](through)()
    h = (ROWS @ networks.w).numpy()
    k, (_, c1, c2) = networks.k.numpy()[0], networks.c.numpy()[:, 0]
    a = np.tanh(h * k)
    np.testing.assert_allclose(values, 2 * h[:, 0] + a @ [c1, c2] + a[:, 0] * a[:, 1], 1e-6)
    # dq/da is (c₁ + a₂, c₂ + a₁), and da is (1 - a²) d(h k). The loss weights rows by 1, 2 and 3.
    slope = np.stack([c1 + a[:, 1], c2 + a[:, 0]], 1) * (1 - a**2) * [[1.0], [2.0], [3.0]]
    np.testing.assert_allclose(of_k, [(h * slope).sum(axis=0)], 1e-5)
    # The gradient reaches w only through the action, and not through the critic's term 2 h.
    np.testing.assert_allclose(of_w[:, 0], (slope @ k) @ ROWS.numpy(), 1e-5)


def test_gradients_of_continuous_actions_equal_those_of_direct_calls() -> None:
    networks, action = Shared(), tf.constant([[0.5, -0.5], [0.25, 1.0], [-1.0, 0.0]])
    outputs = Continuous(UpdateRandom(0, tf.constant(1, tf.int64), tf.float32), (3, 2))
    found = []
    for value in (networks.value, lambda *given: outputs.values(networks.value, *given)):
        with tf.GradientTape() as tape:
            tape.watch(action)
            total = tf.reduce_sum(value(ROWS, action) * [1.0, 2.0, 3.0])
        found.append(tape.gradient(total, action))
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("mode", COMPILERS)
def test_the_gradient_of_choices_compares_all_values_and_does_not_reach_critics(mode: str) -> None:
    space = Tuple([Box(-1, 1, (1,)), Discrete(3)])
    c = tf.Variable([0.5, 1.0, 5.0, 3.0])
    relaxed = tf.constant([[0.25, 0.2, 0.7, 0.1], [0.5, 0.6, 0.1, 0.3]])
    outputs = mixed(space, np.full((2, 2, 4), 0.5))

    def value(observation: tf.Tensor, action: tf.Tensor, alternatives: int = 1) -> tf.Tensor:
        # With the square, the gradient depends on the continuous action.
        assert action.shape[0] == 2 * alternatives
        return tf.linalg.matvec(action[:, 1:], c[1:]) + c[0] * action[:, 0] ** 2

    def through() -> Any:
        with tf.GradientTape() as tape:
            tape.watch(relaxed)
            values = outputs.values(value, None, relaxed)
            loss = tf.reduce_sum(values * [1.0, 10.0])
        slope, of_critic = tape.gradient(loss, [relaxed, c])
        assert of_critic is None
        return values, slope

    values, slope = COMPILERS[mode](through)()
    # The most likely choice is the second in the first row, and the first in the second row. The
    # gradient of each choice is its value minus 3, the mean of 1, 5 and 3.
    np.testing.assert_allclose(values, [5 + 0.5 * 0.25**2, 1 + 0.5 * 0.5**2])
    np.testing.assert_allclose(slope[0], [0.25, -2, 2, 0])
    np.testing.assert_allclose(slope[1], [10 * 0.5, -20, 20, 0])


def test_saturation_covers_all_columns_of_a_choice() -> None:
    outputs = mixed(MIXED, np.ones((2, 1, 9)))
    relaxed = tf.constant([[0.5, -0.995, 0.995, 0.005, 0.0, 0.6, 0.4, 0.001, 0.999]])
    expected = [False, True, True, True, True, False, False, True, True]
    np.testing.assert_array_equal(outputs.saturation(relaxed), [expected])
