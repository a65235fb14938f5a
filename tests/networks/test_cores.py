"""Recurrent cores equal Keras layers, and all cores give equal results stepwise and at once."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from eagerly.agents.agent_settings import MEMORIES
from eagerly.networks.cores import (
    AttentionCore,
    RecurrentCore,
    masked_softmax,
    memory_core,
)
from eagerly.networks.padding import sequence_mask
from eagerly.policies.architecture import MemoryCore

UNITS, STEPS = 6, 11


def core(kind: str, *, length: int = 4, dtype: str = "float64") -> Any:
    made = memory_core(kind, UNITS, heads=2, length=length, seed=1, dtype=dtype)
    if kind == "attention":
        made.distances.assign(np.random.default_rng(2).normal(size=(2, length)))
    return made


def sequences(count: int = 3) -> tf.Tensor:
    return tf.constant(np.random.default_rng(0).normal(size=(count, STEPS, UNITS)))


def everything(count: int = 3) -> tf.Tensor:
    return tf.ones((count, STEPS), tf.bool)


def gradients(layer: Any, x: tf.Tensor, valid: tf.Tensor, weight: tf.Tensor) -> list[np.ndarray]:
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(layer(x, valid) * weight)
    return tape.gradient(loss, [x, *(v.value for v in layer.trainable_variables)])


@pytest.mark.parametrize(
    ("kind", "layer"), [("lstm", keras.layers.LSTM), ("gru", keras.layers.GRU)]
)
def test_recurrent_cores_and_their_gradients_equal_keras(kind: str, layer: Any) -> None:
    ours, x = core(kind), sequences()
    theirs = layer(UNITS, return_sequences=True, dtype="float64")
    theirs.build(x.shape)
    own = [v.numpy() for v in ours.variables]
    theirs.set_weights(own if kind == "lstm" else [own[0], own[1], np.stack(own[2:])])
    weight = tf.constant(np.random.default_rng(3).normal(size=x.shape))
    np.testing.assert_allclose(ours(x, everything()), theirs(x), 1e-12, 1e-14)
    found = gradients(ours, x, everything(), weight)
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(theirs(x) * weight)
    expected = tape.gradient(loss, [x, *(v.value for v in theirs.trainable_variables)])
    if kind == "gru":
        expected = [*expected[:3], *tf.unstack(expected[3])]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, 1e-10, 1e-12)


def test_the_forget_gate_bias_is_initially_1() -> None:
    bias = RecurrentCore("lstm", 3, 2, seed=0, dtype="float32").bias.numpy()
    np.testing.assert_array_equal(bias, [0, 0, 1, 1, 0, 0, 0, 0])


@pytest.mark.parametrize("kind", MEMORIES)
def test_single_steps_equal_whole_sequences_across_episodes(kind: str) -> None:
    layer, x = core(kind), sequences(2)
    shapes = MemoryCore(kind=kind, units=UNITS, length=4).state_shapes()
    state = [tf.zeros((2, *shape), tf.float64) for shape in shapes]
    begins = {4: 0, 7: 1}  # step: the sequence in which an episode begins at this step
    outputs = []
    for step in range(STEPS):
        if step in begins:
            keep = tf.constant([float(row != begins[step]) for row in range(2)], tf.float64)
            state = [part * tf.reshape(keep, [2] + [1] * (len(part.shape) - 1)) for part in state]
        output, state = layer.step(x[:, step], state)
        outputs.append(output.numpy())
    streamed = np.stack(outputs, axis=1)
    for row, cut in ((0, 4), (1, 7)):
        for piece in (slice(None, cut), slice(cut, None)):
            alone = x[row : row + 1, piece]
            valid = tf.ones(alone.shape[:2], tf.bool)
            np.testing.assert_allclose(streamed[row, piece], layer(alone, valid)[0], 1e-12, 1e-13)


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        *((kind, "xla") for kind in MEMORIES),
        *(pytest.param(kind, "graph", marks=pytest.mark.long) for kind in MEMORIES),
    ],
)
def test_cores_and_their_gradients_are_the_same_in_every_mode(kind: str, mode: str) -> None:
    layer, x = core(kind), sequences()
    valid = sequence_mask([11, 5, 1], STEPS)
    weight = tf.where(valid[..., tf.newaxis], sequences() + 1.0, 0.0)
    expected = [layer(x, valid), *gradients(layer, x, valid, weight)]
    body = tf.function(
        lambda x: [layer(x, valid), *gradients(layer, x, valid, weight)], jit_compile=mode == "xla"
    )
    for one, other in zip(body(x), expected, strict=True):
        np.testing.assert_allclose(one, other, 1e-9, 1e-12)


@pytest.mark.parametrize("kind", MEMORIES)
def test_future_steps_do_not_change_earlier_outputs(kind: str) -> None:
    layer, x = core(kind), sequences().numpy()
    before = layer(tf.constant(x), everything()).numpy()
    x[:, 6:] = 1e3
    after = layer(tf.constant(x), everything()).numpy()
    np.testing.assert_array_equal(before[:, :6], after[:, :6])
    assert not np.allclose(before[:, 6:], after[:, 6:])


# --- attention ----------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 4, STEPS])
def test_attention_is_limited_to_the_last_valid_steps(length: int) -> None:
    layer, lengths = core("attention", length=length), np.array([11, 5, 1, 0])
    valid = sequence_mask(lengths, STEPS)
    weights = layer.attention(sequences(4), valid).numpy()
    assert (weights[1, :, :, 5:] == 0).all(), "padding must have a weight of exactly 0"
    assert (weights[3] == 0).all(), "an empty sequence must have no weights"
    ago = np.arange(STEPS)[:, np.newaxis] - np.arange(STEPS)
    assert (weights[:, :, (ago < 0) | (ago >= length)] == 0).all()
    for row, count in enumerate(lengths[:3]):
        np.testing.assert_allclose(weights[row, :, :count].sum(axis=-1), 1.0, 1e-12)
    np.testing.assert_array_equal(weights[2, :, 0, 0], 1.0)  # a single step attends only to itself


def test_masked_softmax_is_a_softmax_over_unmasked_scores() -> None:
    scores = tf.constant([[1.0, 2.0, 3.0], [-1e30, 1e30, 5.0], [0.0, 0.0, 0.0]])
    mask = tf.constant([[True, True, False], [True, True, True], [False, False, False]])
    weights = masked_softmax(scores, mask).numpy()
    np.testing.assert_allclose(weights[0], [1 / (1 + np.e), np.e / (1 + np.e), 0], 1e-6)
    np.testing.assert_array_equal(weights[1:], [[0, 1, 0], [0, 0, 0]])


def test_masked_scores_of_any_value_get_no_gradient() -> None:
    for value in (0.0, 1e30, np.nan, np.inf):
        scores = tf.Variable([[1.0, 2.0, value], [value, value, value]])
        mask = tf.constant([[True, True, False], [False] * 3])
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(masked_softmax(scores, mask) * [[1.0, 5.0, 9.0]])
        gradient = tape.gradient(loss, scores).numpy()
        assert np.isfinite(gradient).all()
        assert (gradient[~mask.numpy()] == 0).all()
        np.testing.assert_allclose(gradient[0, :2], [-0.78645, 0.78645], 1e-4)


def test_attention_does_not_depend_on_when_an_episode_began() -> None:
    layer, x = core("attention"), sequences(1)
    whole = layer(x, everything(1))
    later = layer(x[:, 3:], tf.ones((1, STEPS - 3), tf.bool))
    # Each step attends to 4 steps, so steps from 6 on attend to none before step 3.
    np.testing.assert_allclose(whole[:, 6:], later[:, 3:], 1e-12, 1e-13)


@pytest.mark.parametrize("length", [1, 4, STEPS, 20])
def test_scores_include_the_bias_of_their_time_lag(length: int) -> None:
    layer = core("attention", length=length)
    with tf.GradientTape() as tape:
        offsets = layer._offsets(STEPS)
        total = tf.reduce_sum(offsets * np.arange(STEPS**2).reshape(STEPS, STEPS))
    expected, gradient = np.zeros((2, STEPS, STEPS)), np.zeros((2, length))
    for step in range(STEPS):
        for seen in range(max(0, step - length + 1), step + 1):
            expected[:, step, seen] = layer.distances[:, step - seen]
            gradient[:, step - seen] += STEPS * step + seen
    np.testing.assert_array_equal(offsets, expected)
    np.testing.assert_array_equal(tape.gradient(total, layer.distances.value), gradient)


def test_time_lag_biases_affect_outputs() -> None:
    layer = AttentionCore(UNITS, 2, 4, seed=1, dtype="float64")
    before = layer(sequences(), everything()).numpy()
    layer.distances.assign([[0.0, 5.0, 0.0, 0.0], [0.0] * 4])
    assert not np.allclose(layer(sequences(), everything()), before)
