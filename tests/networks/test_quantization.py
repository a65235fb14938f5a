"""Fake quantization: the same bits in every mode and in NumPy, and gradients by arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces

from eagerly.agents.builder import ModelBuilder
from eagerly.agents.config import AgentConfig
from eagerly.networks import Actor
from eagerly.networks.quantization import (
    Quantization,
    fake_quantized,
    grid,
    quantized_tanh,
    quantized_weights,
)
from eagerly.policies import integer_grids as in_numpy
from eagerly.policies.heads import ActionHead

# A range of 0 to 255 has steps of 1.
WHOLE = tf.constant(0.0), tf.constant(255.0)


def _activations(x: tf.Tensor, low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
    return fake_quantized(x, *grid(low, high))


def _tanh(x: tf.Tensor, low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
    return quantized_tanh(x, *grid(low, high))


def _weights(x: tf.Tensor, low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
    kernel, bias = quantized_weights(x[:-1], x[-1], grid(low, high)[0])
    return tf.concat([kernel, bias[tf.newaxis]], axis=0)


def _weights_in_numpy(x: np.ndarray, low: np.float32, high: np.float32) -> np.ndarray:
    scale, _ = in_numpy.grid(low, high)
    kernel, bias = in_numpy.quantized_layer(x[:-1], x[-1], scale)
    return np.concatenate([kernel, bias[np.newaxis]])


def _tanh_in_numpy(x: np.ndarray, low: np.float32, high: np.float32) -> np.ndarray:
    return in_numpy.quantized_tanh(in_numpy.quantized(x, low, high))


OPS = {
    "activations": (_activations, in_numpy.quantized),
    "tanh": (_tanh, _tanh_in_numpy),
    "weights": (_weights, _weights_in_numpy),
}


def _drawn(seed: int) -> tuple[np.ndarray, np.float32, np.float32]:
    """Draws values `[40, 30]` and a range; a third of the values lies halfway between steps."""
    random = np.random.default_rng(seed)
    ends = random.exponential(size=2) * 10.0 ** random.uniform(-2, 1, 2)
    low, high = np.float32(-ends[0] * (seed % 5 > 0)), np.float32(ends[1])
    scale, _ = in_numpy.grid(low, high)
    halves = ((np.arange(-200, 200) + 0.5) * np.float64(scale)).astype(np.float32)
    inside = random.normal(size=1200 - 804).astype(np.float32) * (high - low)
    beside = np.nextafter(halves, np.float32(1e9))
    numbers = np.concatenate([halves, beside, [low, high, 0.0, -0.0], inside])
    return numbers.astype(np.float32).reshape(40, 30), low, high


def _bits(values: np.ndarray) -> np.ndarray:
    return values.view(np.int32)


@pytest.mark.parametrize("name", OPS)
def test_values_and_gradients_have_the_same_bits_in_every_mode_and_in_numpy(name: str) -> None:
    op, expected = OPS[name]

    def both(x: tf.Tensor, low: tf.Tensor, high: tf.Tensor, upstream: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            values = op(x, low, high)
        return values, tape.gradient(values, x, upstream)

    modes: list[Callable[..., Any]] = [both, tf.function(both), tf.function(both, jit_compile=True)]
    upstream = np.random.default_rng(9).normal(size=(40, 30)).astype(np.float32)
    for seed in range(100):
        given = [tf.constant(each) for each in (*_drawn(seed), upstream)]
        (values, gradient), *others = ([each.numpy() for each in m(*given)] for m in modes)
        np.testing.assert_array_equal(values, expected(*_drawn(seed)))
        for other_values, other_gradient in others:
            np.testing.assert_array_equal(_bits(values), _bits(other_values))
            if name == "tanh":  # 1 - tanh² is as accurate as without a grid
                np.testing.assert_allclose(gradient, other_gradient, 1e-5, 5e-6)
            else:
                np.testing.assert_array_equal(_bits(gradient), _bits(other_gradient))


def test_columns_of_any_scale_have_the_same_bits_in_every_mode_and_in_numpy() -> None:
    random = np.random.default_rng(4)
    sizes = (10.0 ** np.linspace(-46, 8, 600)).astype(np.float32)
    scale = tf.constant(0.013)
    modes = [quantized_weights, tf.function(quantized_weights)]
    modes.append(tf.function(quantized_weights, jit_compile=True))
    for _ in range(10):
        kernel = random.normal(size=(20, 600)).astype(np.float32) * sizes
        bias = random.normal(size=600).astype(np.float32) * random.permutation(sizes)
        expected = in_numpy.quantized_layer(kernel, bias, np.float32(0.013))
        for mode in modes:
            found = mode(tf.constant(kernel), tf.constant(bias), scale)
            for mine, its in zip(found, expected, strict=True):
                np.testing.assert_array_equal(mine, its)


def test_a_bias_stays_accurate_next_to_much_smaller_weights() -> None:
    kernel = tf.constant([[1.0, 1e-9, 1e-20, 1e-37, 1e-44]])
    on_grid = quantized_weights(kernel, tf.ones(5), tf.constant(2.0**-7))
    np.testing.assert_allclose(on_grid[1], np.ones(5), 1e-3)
    # A bias of 2^30 steps requires a scale of 2^-23 in the other columns.
    np.testing.assert_array_equal(on_grid[0], [[1.0, 0.0, 0.0, 0.0, 0.0]])


def test_scales_are_rounded_correctly_in_every_mode() -> None:
    random = np.random.default_rng(0)
    high = (random.uniform(1, 2, 100_000) * 2.0 ** random.integers(-12, 12, 100_000)).astype("f")
    low = -high * random.uniform(0, 1, 100_000).astype("f")
    whole = high.astype(np.float64) - low
    scale = (whole / 255.0).astype(np.float32)
    zero_points = np.floor(-127.5 - low.astype(np.float64) * 255.0 / whole)
    for mode in (grid, tf.function(grid), tf.function(grid, jit_compile=True)):
        found = [each.numpy() for each in mode(tf.constant(low), tf.constant(high))]
        np.testing.assert_array_equal(found[0], scale)
        np.testing.assert_array_equal(found[1], zero_points)
    # A product with the inverse, as graphs compute a division by a constant, differs.
    assert (high * np.float32(1.0 / 255.0) != high / np.float32(255.0)).any()


def test_halves_round_to_even_and_the_gradient_is_zero_outside_the_grid() -> None:
    x = tf.constant([0.5, 1.5, 2.5, -0.4, -0.6, 255.4, 255.6, 300.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        values = fake_quantized(x, *grid(*WHOLE))
    np.testing.assert_array_equal(values, [0, 2, 2, 0, 0, 255, 255, 255])
    gradient = tape.gradient(values, x, tf.constant([float(n) for n in range(1, 9)]))
    np.testing.assert_array_equal(gradient, [1, 2, 3, 4, 0, 6, 0, 0])


def test_weights_are_integer_multiples_with_a_straight_through_gradient() -> None:
    # Columns with maxima of 127 and 254 have steps of 1 and 2; inputs have steps of 1.
    kernel = tf.constant([[127.0, -254.0], [0.5, 2.9], [-1.5, 1.0]])
    bias = tf.constant([2.5, 5.0])
    with tf.GradientTape() as tape:
        tape.watch((kernel, bias))
        on_grid = quantized_weights(kernel, bias, grid(*WHOLE)[0])
    np.testing.assert_array_equal(on_grid[0], [[127, -254], [0, 2], [-2, 0]])
    np.testing.assert_array_equal(on_grid[1], [2, 4])
    for gradient in tape.gradient(on_grid, (kernel, bias)):
        np.testing.assert_array_equal(gradient, np.ones_like(gradient))


def test_quantized_tanh_has_the_derivative_of_tanh_even_outside_the_range() -> None:
    x = tf.constant([0.0, 1.0, -1.0, 6.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        values = quantized_tanh(x, *grid(tf.constant(-4.0), tf.constant(4.0)))
    np.testing.assert_allclose(tape.gradient(values, x), 1 - np.tanh(x) ** 2, 1e-5, 1e-7)
    # The step nearest to 1 is 1.00392, whose tanh is 97.7 / 128; 128 is not an 8-bit integer.
    assert (values.numpy() * 128).tolist() == [0, 98, -98, 127]


# --- ranges -------------------------------------------------------------------------------------


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
    # 2 × 0.25 = 0.5 and 3 × 0.5 = 1.5, on grids with steps of 2.25 / 255 and 0.5 / 255.
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
    # Sums of products are rounded differently, occasionally to a different step.
    step = 1 / 128 if name in ("box", "choice") else float(actor._quantization.high[-1]) / 64
    assert (np.abs(found - scores) <= 2e-6).mean() >= 0.99
    assert np.abs(found - scores).max() <= 3 * step
    # An actor that ignores the grids fails this test.
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
    # A manual backward pass on the NumPy grids.
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
