"""Actor and critic: creation, initialization of each critic, and equality with NumPy snapshots."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from eagerly.networks import Actor, Critic, KerasPolicy
from eagerly.networks.initializers import INITIALIZERS, linear_initializers
from eagerly.networks.layers import EnsembleDense, elu, product
from eagerly.policies.operations import ACTIVATIONS

RANDOM = np.random.default_rng(0)
OBSERVATION = RANDOM.normal(size=(9, 5)).astype(np.float32)
ACTION = RANDOM.uniform(-1, 1, (9, 3)).astype(np.float32)


def perturbed(model: keras.Model) -> keras.Model:
    """Changes all weights, so that biases and scales differ from their initial values."""
    random = np.random.default_rng(1)
    model.set_weights([w + random.normal(size=w.shape) * 0.1 for w in model.get_weights()])
    return model


def test_the_constructor_creates_all_weights() -> None:
    assert Actor(17, 6).count_params() == 18 * 256 + 257 * 256 + 257 * 6
    assert Critic(17, 6).count_params() == 2 * (24 * 256 + 257 * 256 + 257)
    assert Critic(17, 6, n_critics=5).count_params() == 5 * (24 * 256 + 257 * 256 + 257)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_elu_and_its_gradient_equal_tensorflow_up_to_rounding(dtype: str) -> None:
    near = [-1e-9, -3e-8, -1e-4, 0.0, 1e-9, -np.inf, np.inf]
    x = tf.constant([*np.linspace(-30, 30, 6001), *near], dtype)
    found = []
    for function in (elu, tf.function(elu, jit_compile=True), tf.nn.elu):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        found.append((y.numpy(), tape.gradient(y, x).numpy()))
    for values, slopes in found[:2]:
        np.testing.assert_allclose(values, found[2][0], rtol=0, atol=6e-8)
        np.testing.assert_allclose(slopes, found[2][1], rtol=0, atol=6e-8)
    assert np.isnan(elu(tf.constant([np.nan], dtype)).numpy()).all()


def test_actions_are_in_bounds_and_values_have_one_row_per_critic() -> None:
    actions = Actor(5, 3, seed=1)(OBSERVATION * 1e3)
    assert actions.shape == (9, 3)
    assert np.abs(actions).max() <= 1
    assert Critic(5, 3, n_critics=4)(OBSERVATION, ACTION).shape == (4, 9)


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_snapshot_equals_the_actor(layer_norm: bool, activation: str, dtype: str) -> None:
    actor = perturbed(
        Actor(
            5, 3, hidden_sizes=(32, 16), activation=activation, layer_norm=layer_norm, dtype=dtype
        )
    )
    actions = actor(OBSERVATION).numpy()
    snapshot = actor.snapshot()(OBSERVATION)
    assert snapshot.dtype == dtype
    np.testing.assert_allclose(snapshot, actions, rtol=0, atol=1e-6)


def test_updates_of_the_actor_do_not_change_a_snapshot() -> None:
    actor = Actor(5, 3)
    snapshot = actor.snapshot()
    before = snapshot(OBSERVATION)
    perturbed(actor)
    np.testing.assert_array_equal(snapshot(OBSERVATION), before)


def test_an_actor_without_a_snapshot_returns_the_same_actions() -> None:
    actor = perturbed(Actor(5, 3))
    with_snapshot = KerasPolicy(actor)
    inputs = keras.Input((5,))
    without = KerasPolicy(keras.Model(inputs, actor(inputs)))
    np.testing.assert_allclose(without(OBSERVATION), with_snapshot(OBSERVATION), rtol=0, atol=1e-6)
    actor.set_weights([w * 0.5 for w in actor.get_weights()])
    with_snapshot.refresh()
    without.refresh()
    np.testing.assert_allclose(without(OBSERVATION), with_snapshot(OBSERVATION), rtol=0, atol=1e-6)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_first_returns_the_values_of_member_zero(layer_norm: bool) -> None:
    critic = perturbed(Critic(5, 3, n_critics=3, layer_norm=layer_norm))
    np.testing.assert_allclose(
        critic.first(OBSERVATION, ACTION), critic(OBSERVATION, ACTION)[0], rtol=1e-5, atol=1e-6
    )


def test_first_does_not_compute_the_other_members() -> None:
    critic = Critic(5, 3, n_critics=2)
    poisoned = [w.copy() for w in critic.get_weights()]
    for weights in poisoned:
        weights[1] = np.nan
    critic.set_weights(poisoned)
    assert np.isfinite(critic.first(OBSERVATION, ACTION)).all()
    graph = tf.function(critic.first).get_concrete_function(OBSERVATION, ACTION).graph
    products = [op for op in graph.get_operations() if "MatMul" in op.type]
    assert [product.outputs[0].shape.rank for product in products] == [2, 2, 2]


def test_one_critic_equals_a_plain_network() -> None:
    critic = perturbed(Critic(5, 3, n_critics=1, hidden_sizes=(16, 8)))
    plain = keras.Sequential(
        [keras.layers.Dense(n, activation=a) for n, a in ((16, "relu"), (8, "relu"), (1, None))]
    )
    inputs = np.concatenate([OBSERVATION, ACTION], axis=1)
    plain.build(inputs.shape)
    plain.set_weights([w[0] for w in critic.get_weights()])
    np.testing.assert_allclose(
        critic(OBSERVATION, ACTION)[0], plain(inputs)[:, 0], rtol=1e-5, atol=1e-6
    )


def test_members_are_independent_networks() -> None:
    critic = perturbed(Critic(5, 3, n_critics=3, layer_norm=True))
    before = critic(OBSERVATION, ACTION).numpy()
    changed = [w.copy() for w in critic.get_weights()]
    for weights in changed:
        weights[1] *= 2
    critic.set_weights(changed)
    after = critic(OBSERVATION, ACTION).numpy()
    np.testing.assert_array_equal(after[[0, 2]], before[[0, 2]])
    assert not np.isclose(after[1], before[1]).any()


@pytest.mark.parametrize("initializer", INITIALIZERS)
def test_each_member_is_initialized_like_a_plain_layer(initializer: str) -> None:
    members, inputs, units = 6, 40, 50
    ensemble = EnsembleDense(
        members, inputs, units, initializer=initializer, seed=3, name="layer", dtype="float32"
    )
    kernel_draw, bias_draw = linear_initializers(initializer, inputs, 5)
    plain = keras.layers.Dense(units, kernel_initializer=kernel_draw, bias_initializer=bias_draw)
    plain.build((None, inputs))
    kernels, biases = ensemble.kernel.numpy(), ensemble.bias.numpy()
    for member in range(members):
        assert np.isclose(kernels[member].std(), plain.kernel.numpy().std(), rtol=0.1)
        if initializer.endswith("uniform") or initializer == "torch_linear":
            # The largest of 2,000 uniform draws is within 1% of the initializer's limit.
            assert np.isclose(np.abs(kernels[member]).max(), np.abs(plain.kernel).max(), rtol=0.01)
        for other in range(member):
            assert not np.isclose(kernels[member], kernels[other]).all()
    if initializer == "torch_linear":
        assert 0.8 / np.sqrt(inputs) < np.abs(biases).max() <= 1 / np.sqrt(inputs)
        assert np.abs(kernels).max() <= 1 / np.sqrt(inputs)
    else:
        np.testing.assert_array_equal(biases, np.zeros((members, units)))


def test_a_layer_without_inputs_can_be_initialized() -> None:
    ensemble = EnsembleDense(2, 0, 3, initializer="torch_linear", seed=0, name="x", dtype="float32")
    assert np.isfinite(ensemble.bias.numpy()).all()


def test_a_single_member_equals_a_plain_layer_with_its_seed() -> None:
    from eagerly.networks.initializers import weight_seeds

    ensemble = EnsembleDense(
        1, 7, 5, initializer="glorot_uniform", seed=3, name="layer", dtype="float32"
    )
    kernel_draw, _ = linear_initializers("glorot_uniform", 7, weight_seeds(3, 1)[0])
    np.testing.assert_array_equal(ensemble.kernel.numpy()[0], kernel_draw((7, 5)))


def test_the_seed_determines_the_weights() -> None:
    one, same, other = (Actor(5, 3, seed=seed).get_weights() for seed in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(one, same, strict=True))
    assert not np.array_equal(one[0], other[0])


def test_the_dtype_applies_to_all_variables_but_does_not_change_that_of_keras() -> None:
    for model in (Actor(5, 3, layer_norm=True, dtype="float64"), Critic(5, 3, dtype="float64")):
        assert {variable.dtype for variable in model.variables} == {"float64"}
    assert keras.config.floatx() == "float32"


def test_unknown_names_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"activation must be one of relu.*; got 'sine'"):
        Actor(5, 3, activation="sine")
    with pytest.raises(ValueError, match=r"initializer must be one of .*; got 'big'"):
        Critic(5, 3, initializer="big")


# --- products ---------------------------------------------------------------------------------


@pytest.mark.parametrize("members", [0, 2])
@pytest.mark.parametrize("width", [128, 256, 130])
def test_product_and_its_gradients_equal_matmul(members: int, width: int) -> None:
    leading = (members,) if members else ()
    inputs = tf.random.stateless_normal((*leading, 5, width), (0, 1), dtype=tf.float64)
    kernel = tf.random.stateless_normal((*leading, width, 3), (2, 3), dtype=tf.float64)
    upstream = tf.random.stateless_normal((*leading, 5, 3), (4, 5), dtype=tf.float64)
    found = []
    for multiply in (product, tf.matmul):
        with tf.GradientTape() as tape:
            tape.watch((inputs, kernel))
            result = multiply(inputs, kernel)
        found.append((result, *tape.gradient(result, (inputs, kernel), upstream)))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_the_gradient_of_a_shared_input_is_the_sum_over_members() -> None:
    inputs = tf.random.stateless_normal((5, 128), (0, 1), dtype=tf.float64)
    kernel = tf.random.stateless_normal((2, 128, 3), (2, 3), dtype=tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        result = product(inputs, kernel)
    expected = sum(tf.matmul(tf.ones((5, 3), tf.float64), k, transpose_b=True) for k in kernel)
    np.testing.assert_allclose(tape.gradient(result, inputs), expected, rtol=1e-12)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_weights_and_results_stay_float32_with_bfloat16(layer_norm: bool) -> None:
    settings = {"hidden_sizes": (128, 16), "layer_norm": layer_norm}
    observation, action = tf.ones((3, 4)), tf.ones((3, 2))
    for build, arguments in ((Actor, (observation,)), (Critic, (observation, action))):
        low = build(4, 2, dtype="mixed_bfloat16", **settings)
        full = build(4, 2, dtype="float32", **settings)
        assert {v.dtype for v in low.variables} == {"float32"}
        result = low(*arguments)
        assert result.dtype == tf.float32
        np.testing.assert_allclose(result, full(*arguments), rtol=0.05, atol=0.02)
        assert not np.array_equal(result, full(*arguments))
        if build is Critic:
            assert low.first(*arguments).dtype == tf.float32
            np.testing.assert_allclose(low.first(*arguments), result[0], rtol=0.02, atol=0.01)


def test_an_ensemble_without_bias_is_only_a_product() -> None:
    layer = EnsembleDense(
        2, 5, 3, initializer="orthogonal", seed=0, name="d", dtype="float32", use_bias=False
    )
    assert [variable.path.rpartition("/")[2] for variable in layer.variables] == ["kernel"]
    expected = np.einsum("bi,ciu->cbu", OBSERVATION, layer.kernel.numpy())
    np.testing.assert_allclose(layer(OBSERVATION), expected, 1e-5, 1e-6)
    np.testing.assert_allclose(layer.first(OBSERVATION), expected[0], 1e-5, 1e-6)
