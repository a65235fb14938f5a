"""Quantized actors: their ranges track training batches, and NumPy uses the same grids."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces

from eagerly.agents.builder import ModelBuilder
from eagerly.agents.config import AgentConfig
from eagerly.networks import Actor
from eagerly.networks.quantization_ranges import Quantization
from eagerly.policies import integer_grids as in_numpy
from eagerly.policies.heads import ActionHead


def _ranged(low: list[float], high: list[float], **settings: Any) -> Quantization:
    made = Quantization(len(low) - 3, **settings)
    made.low.assign(low)
    made.high.assign(high)
    return made


def _actor(quantization: Quantization) -> Actor:
    """Returns an actor that maps one input x to the action tanh(3 relu(2 x))."""
    actor = Actor(1, 1, hidden_sizes=(1,), quantization=quantization)
    for name, value in (("hidden_0", 2.0), ("action", 3.0)):
        layer = next(each for each in actor._linear if each.name == name)
        layer.kernel.assign([[value]])
        layer.bias.assign([0.0])
    return actor


BATCH = np.array([[-2.0], [-0.5], [0.0], [0.25]], np.float32)


def test_ranges_are_initially_wide_and_set_by_the_first_batch() -> None:
    quantization = Quantization(1)
    actor = _actor(quantization)
    np.testing.assert_allclose(quantization.low, [-10, 0, -4, -10], 1e-6)
    np.testing.assert_allclose(quantization.high, [10, 10, 4, 10], 1e-6)
    actor(BATCH)
    assert quantization.is_first()
    actor(BATCH, training=True)
    # The new maxima are 2 × 0.25 = 0.5 and 3 × 0.5 = 1.5, except that layers round their inputs to
    # grids with steps of 2.25 / 255 and 0.5 / 255.
    np.testing.assert_allclose(quantization.low, [-2, 0, 0, -10], 1e-6, 1e-7)
    np.testing.assert_allclose(quantization.high, [0.25, 0.5, 1.5, 10], rtol=0.03)
    assert not quantization.is_first()


def test_later_batches_move_ranges_by_one_percent_and_keep_0_inside() -> None:
    quantization = _ranged([-1.0, 0.0, -1.0, -10.0], [1.25, 1.0, 1.0, 10.0])
    _actor(quantization)(BATCH, training=True)
    np.testing.assert_allclose(quantization.low, [-1.01, 0.0, -0.99, -10.0], 1e-6)
    np.testing.assert_allclose(quantization.high[:1], [1.25 - 0.01], 1e-6)
    np.testing.assert_allclose(quantization.high[1:3], [1.0 - 0.005, 1.0 + 0.005], 1e-3)


def test_ranges_before_the_tanh_end_at_4_and_have_a_minimum_width() -> None:
    loud, silent = Quantization(1), Quantization(1)
    _actor(loud)(BATCH * -100.0, training=True)
    assert float(loud.high[2]) == in_numpy.SATURATED
    _actor(silent)(BATCH * 0.0, training=True)
    np.testing.assert_array_equal(silent.low[:3], [0, 0, 0])
    np.testing.assert_array_equal(silent.high[:3], [2.0**-10] * 3)


def test_ranges_freeze_after_freeze_steps_except_for_the_first_batch() -> None:
    passed = tf.Variable(4, dtype=tf.int64)
    quantization = Quantization(1, freeze_steps=5, passed=passed.value)
    actor = _actor(quantization)
    actor(BATCH, training=True)
    for count, moves in ((4, True), (5, False), (6, False)):
        passed.assign(count)
        before = quantization.high.numpy()
        actor(BATCH * 2, training=True)
        assert (quantization.high.numpy() != before).any() == moves, count
    late = Quantization(1, freeze_steps=5, passed=passed.value)
    _actor(late)(BATCH, training=True)
    np.testing.assert_allclose(late.low[:1], [-2.0])


@pytest.mark.parametrize("choices", [(), (2,)])
def test_a_first_batch_clipped_at_both_ends_sets_the_ranges(choices: tuple[int, ...]) -> None:
    quantization = Quantization(0, freeze_steps=5, passed=lambda: tf.constant(9, tf.int64))
    head = ActionHead(0, choices) if choices else ActionHead(1)
    actor = Actor(1, head.size, head=head, hidden_sizes=(), quantization=quantization)
    rows = np.array([[-10.0], [10.0]], np.float32)
    actor(rows)
    (layer,) = actor._linear
    layer.kernel.assign([[1.0, -1.0][: head.size]])
    actor(rows, training=True)
    assert not quantization.is_first()
    np.testing.assert_array_equal(quantization.high[:1], [10.0])
    before = quantization.high.numpy()
    actor(rows / 10, training=True)
    np.testing.assert_array_equal(quantization.high, before)


# --- actors -------------------------------------------------------------------------------------

LONG = pytest.mark.long
BOX = spaces.Box(-np.inf, np.inf, (17,))
SPACES: dict[str, tuple[gymnasium.Space, gymnasium.Space]] = {
    "box": (BOX, spaces.Box(-1, 1, (6,))),
    "masked": (BOX, spaces.MultiDiscrete([3, 4])),
    "mixed": (BOX, spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Discrete(4)})),
    "choice": (spaces.Discrete(5), spaces.Box(-1, 1, (2,))),
}


def _trained(name: str) -> tuple[Actor, np.ndarray]:
    """Returns an actor with changed weights and ranges, and observations `[2000, O]`."""
    config = AgentConfig(normalize_observations=name != "choice", quantize="int8")
    builder, random = ModelBuilder(config, *SPACES[name], seed=3), np.random.default_rng(1)
    actor = builder.actor()
    for variable in actor.trainable_variables:
        variable.assign(variable.numpy() + 0.05 * random.normal(size=variable.shape))
    rows = random.normal(size=(2000, builder.observations.size)).astype(np.float32)
    if name == "choice":
        rows = np.eye(5, dtype=np.float32)[random.integers(0, 5, 2000)]
    if masked := builder.observations.masked:
        rows[:, -masked:] = random.integers(0, 2, (2000, masked))
        rows[:, -masked] = rows[:, -4] = 1.0
    for _ in range(3):
        actor(rows[:256], training=True)
    architecture = config.actor_architecture(builder.observations, builder.actions)
    assert architecture == actor.architecture
    return actor, rows


@pytest.mark.parametrize(
    ("name", "compiled"),
    [
        *(pytest.param(name, False, id=f"eager-{name}") for name in SPACES),
        *(
            pytest.param(name, True, id=f"xla-{name}", marks=[] if name == "mixed" else [LONG])
            for name in SPACES
        ),
    ],
)
def test_the_numpy_actor_uses_the_same_grids(name: str, compiled: bool) -> None:
    actor, rows = _trained(name)
    call = tf.function(actor, jit_compile=True) if compiled else actor
    scores, found = call(tf.constant(rows)).numpy(), actor.snapshot()(rows)
    # NumPy rounds sums of products differently, so a value is occasionally rounded to another step.
    step = 1 / 128 if name in ("box", "choice") else float(actor._quantization.high[-1]) / 64
    assert (np.abs(found - scores) <= 2e-6).mean() >= 0.99
    assert np.abs(found - scores).max() <= 3 * step
    # An actor without quantization would fail the comparison above.
    weights = {v.path: v.numpy() for v in actor.variables if "quantization" not in v.path}
    plain = Actor(
        rows.shape[1],
        scores.shape[1],
        head=actor.architecture.head,
        normalization=actor._normalization,
    )
    for variable in plain.variables:
        variable.assign(weights[variable.path])
    assert (np.abs(plain(rows).numpy() - scores) <= 2e-6).mean() < 0.6


def test_gradients_use_the_rounded_weights_and_activations() -> None:
    actor, rows = _trained("box")
    inputs = actor._inputs(tf.constant(rows[:64]))
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(actor(rows[:64]))
    gradients = tape.gradient(total, [v.value for v in actor.trainable_variables])
    # The expected gradients come from a backward pass written in NumPy, with the NumPy grids.
    *ranges, of_actions, _ = actor.snapshot().network.ranges
    layers = [(layer.kernel.numpy(), layer.bias.numpy()) for layer in actor._linear]
    hidden, known = in_numpy.quantized(inputs.numpy(), *ranges[0]), []
    for layer, each, after in zip(layers, ranges, [*ranges[1:], None], strict=True):
        kernel, bias = in_numpy.quantized_layer(*layer, in_numpy.grid(*each)[0])
        outputs = hidden @ kernel + bias
        known.append((hidden, kernel, outputs))
        if after is not None:
            hidden = in_numpy.quantized(np.maximum(outputs, 0.0), *after)
    slope = 1.0 - np.tanh(known[-1][2]) ** 2
    for index in (2, 1, 0):
        below, kernel, _ = known[index]
        for found, expected in (
            (gradients[2 * index], below.T @ slope),
            (gradients[2 * index + 1], slope.sum(axis=0)),
        ):
            np.testing.assert_allclose(found, expected, 1e-3, 1e-3 * np.abs(expected).max())
        if index:
            outputs, (_, high) = known[index - 1][2], ranges[index]
            inside = (outputs > 0) & (outputs <= high * (1 + 0.5 / 255))
            slope = (slope @ kernel.T) * inside
    assert float(of_actions[1]) > 0


@pytest.mark.parametrize(
    "settings",
    [{"activation": "tanh"}, {"layer_norm": True}, {"dtype": "float64"}],
)
def test_unsupported_actors_cannot_be_quantized(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must have activation relu, no layer_norm and dtype fl"):
        Actor(3, 2, quantization=Quantization(2), **settings)
