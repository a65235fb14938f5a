"""Values and gradients of the losses, compared with numbers that can be checked by hand."""

from __future__ import annotations

from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf

from eagerly.agents import losses
from eagerly.agents.metrics import actor_metrics, critic_metrics

MODES: dict[str, Callable] = {
    "eager": lambda f: f,
    "graph": tf.function,
    "xla": lambda f: tf.function(f, jit_compile=True),
}


@pytest.fixture(params=MODES)
def run(request: pytest.FixtureRequest) -> Callable:
    return MODES[request.param]


def test_smoothed_action_clips_the_noise_and_then_the_action(run: Callable) -> None:
    action = tf.constant([[0.0, 0.9], [-0.5, -0.9]])
    noise = tf.constant([[0.25, 0.25], [2.0, -2.0]])
    smoothed = run(lambda a, n: losses.smoothed_action(a, n, 0.5))(action, noise)
    np.testing.assert_allclose(smoothed, [[0.25, 1.0], [0.0, -1.0]])


def test_clipped_target_uses_the_smallest_value_of_each_row(run: Callable) -> None:
    target = run(losses.clipped_target)(
        tf.constant([1.0, 2.0, 3.0]),
        tf.constant([0.5, 0.5, 0.0]),
        tf.constant([[10.0, 40.0, 100.0], [20.0, 30.0, 100.0]]),
    )
    np.testing.assert_allclose(target, [1 + 0.5 * 10, 2 + 0.5 * 30, 3])


def test_clipped_target_of_one_critic_is_the_plain_target() -> None:
    one = losses.clipped_target(tf.constant([1.0]), tf.constant([0.5]), tf.constant([[4.0]]))
    np.testing.assert_allclose(one, [3.0])


def test_no_gradient_flows_through_the_target() -> None:
    next_values = tf.Variable([[1.0, 2.0]])
    with tf.GradientTape() as tape:
        target = losses.clipped_target(tf.ones(2), tf.ones(2), next_values)
    assert tape.gradient(target, next_values) is None


def test_critic_loss_sums_the_mean_squared_errors(run: Callable) -> None:
    values = tf.constant([[1.0, 2.0], [3.0, 6.0]])
    target = tf.constant([0.0, 4.0])
    # The loss of critic 0 is (1 + 4) / 2, and that of critic 1 is (9 + 4) / 2.
    assert float(run(losses.critic_loss)(values, target)) == 2.5 + 6.5


def test_critic_loss_gives_each_critic_the_gradient_of_separate_training() -> None:
    values = tf.Variable([[1.0, 2.0], [3.0, 6.0]])
    with tf.GradientTape() as tape:
        loss = losses.critic_loss(values, tf.constant([0.0, 4.0]))
    # The mean of (q - y)^2 over two rows has the derivative 2 (q - y) / 2 with respect to q.
    np.testing.assert_allclose(tape.gradient(loss, values), [[1.0, -2.0], [3.0, 2.0]])


def test_actor_loss_increases_the_values(run: Callable) -> None:
    values = tf.Variable([1.0, 5.0, 6.0])
    with tf.GradientTape() as tape:
        loss = run(losses.actor_loss)(values)
    assert float(loss) == -4.0
    np.testing.assert_allclose(tape.gradient(loss, values), [-1 / 3] * 3)


def test_metrics_leave_out_padding() -> None:
    mask = tf.constant([True, True, False])
    values, target = tf.constant([[1.0, 5.0, 99.0], [9.0, 9.0, 9.0]]), tf.constant([2.0, 4.0, 99.0])
    found = critic_metrics(tf.ones(()), values, target, mask)
    assert {name: float(value) for name, value in found.items()} == {
        "losses/critic": 1.0,
        "values/mean": 3.0,
        "values/max": 5.0,
        "values/target_mean": 3.0,
    }
    saturated = tf.constant([[True, False], [False, False], [True, True]])
    assert float(actor_metrics(tf.ones(()), saturated, mask)["actions/saturation"]) == 0.25


def test_polyak_update_moves_by_tau_toward_the_source(run: Callable) -> None:
    target, source = keras.Variable([0.0, 8.0]), keras.Variable([4.0, 4.0])
    run(lambda: losses.polyak_update([target], [source], 0.25))()
    np.testing.assert_allclose(target.numpy(), [0.25 * 4, 0.25 * 4 + 0.75 * 8])
    np.testing.assert_allclose(source.numpy(), [4.0, 4.0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: losses.critic_loss(tf.ones((2, 8)), tf.ones((8, 1))), r"target .*\[B\].*\(8, 1\)"),
        (lambda: losses.critic_loss(tf.ones(8), tf.ones(8)), r"values .*\[C, B\].*\(8,\)"),
        (lambda: losses.actor_loss(tf.ones((8, 1))), r"values must have shape \[B\], got \(8, 1\)"),
        (
            lambda: losses.critic_loss(tf.ones((2, 8)), tf.ones(1)),
            r"values must have the batch size",
        ),
        (
            lambda: losses.clipped_target(tf.ones(8), tf.ones(8), tf.ones((2, 1))),
            r"next_values must have the batch size of reward, 8; got \(2, 1\)",
        ),
        (
            lambda: losses.clipped_target(tf.ones((8, 1)), tf.ones(8), tf.ones((2, 8))),
            r"reward .*\[B\].*\(8, 1\)",
        ),
        (
            lambda: losses.clipped_target(tf.ones(8), tf.ones((8, 1)), tf.ones((2, 8))),
            r"discount .*\(8,\).*\(8, 1\)",
        ),
        (
            lambda: losses.smoothed_action(tf.ones((8, 2)), tf.ones((1, 2)), 0.5),
            r"noise .*\(8, 2\).*\(1, 2\)",
        ),
        (
            lambda: critic_metrics(tf.ones(()), tf.ones((2, 8, 5)), tf.ones(8), None),
            r"values must have shape \[C, B\], got \(2, 8, 5\)",
        ),
    ],
)
def test_a_wrong_shape_is_rejected_before_it_broadcasts(call: Callable, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
