"""The state-action embeddings (SALE) of TD7, and the actor and critics that use them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from eagerly.agents.td7 import TD7Builder
from eagerly.agents.td7_config import TD7Config
from eagerly.networks.layers import EnsembleDense
from eagerly.networks.sale import ConcatDense, EmbeddedPolicy, ValueRange, average_l1_norm
from tests.helpers import spaces

SMALL: dict[str, Any] = {
    "hidden_sizes": (16, 8),
    "embedding_size": 6,
    "encoder_hidden_sizes": (12,),
}


def builder_of(**settings: Any) -> TD7Builder:
    return TD7Builder(TD7Config(**SMALL | settings), *spaces(3, 2), seed=0)


def rows(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_vectors_are_divided_by_their_mean_absolute_value() -> None:
    found = average_l1_norm(tf.constant([[1.0, -3.0], [0.0, 0.0], [-5.0, 5.0]])).numpy()
    np.testing.assert_array_equal(found, [[0.5, -1.5], [0.0, 0.0], [-1.0, 1.0]])


def test_a_tiny_vector_is_not_scaled_up_to_1() -> None:
    assert float(average_l1_norm(tf.constant([[1e-10]]))[0, 0]) == pytest.approx(0.01)


def test_separate_and_shared_inputs_equal_one_joined_layer() -> None:
    layer = ConcatDense(
        3, 4, 5, 2, initializer="torch_linear", seed=1, name="joined", dtype="float32"
    )
    own, shared = rows(3, 7, 4), rows(7, 5, seed=1)
    apart = layer(own, shared).numpy()
    of_shared = layer.shared_kernel.numpy().reshape(5, 3, 2).transpose(1, 0, 2)
    kernel = np.concatenate([layer.kernel.numpy(), of_shared], axis=1)
    inputs = np.concatenate([own, np.broadcast_to(shared, (3, 7, 5))], axis=2)
    together = inputs @ kernel + layer.bias.numpy()[:, np.newaxis]
    np.testing.assert_allclose(apart, together, rtol=1e-5, atol=1e-6)


def test_concat_dense_is_initialized_like_one_joined_layer() -> None:
    given: dict[str, Any] = {"initializer": "torch_linear", "seed": 5, "dtype": "float32"}
    joined, whole = (
        ConcatDense(2, 3, 4, 6, name="a", **given),
        EnsembleDense(2, 7, 6, name="b", **given),
    )
    np.testing.assert_array_equal(joined.kernel.numpy(), whole.kernel.numpy()[:, :3])
    for member in range(2):
        np.testing.assert_array_equal(
            joined.shared_kernel.numpy()[:, 6 * member : 6 * member + 6],
            whole.kernel.numpy()[member, 3:],
        )
    np.testing.assert_array_equal(joined.bias.numpy(), whole.bias.numpy())


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize(("precision", "close"), [("float32", 2e-6), ("float64", 1e-12)])
def test_the_numpy_policy_equals_the_tensorflow_policy(
    precision: str, close: float, *, normalized: bool
) -> None:
    policy = builder_of(precision=precision, normalize_observations=normalized).policy_actor()
    if normalized:
        for variable in policy.variables:
            if variable.path.startswith("observation_normalization"):
                variable.assign(np.abs(rows(3)) + 0.5)
    observations = 3 * rows(50, 3)
    found = policy.snapshot()(observations)
    np.testing.assert_allclose(found, policy(observations).numpy(), rtol=0, atol=close)
    assert found.std() > 0.01


def test_policies_of_a_builder_have_separate_variables_and_equal_weights() -> None:
    builder = builder_of()
    one, other = builder.policy_actor(), builder.policy_actor()
    for mine, yours in zip(one.variables, other.variables, strict=True):
        assert mine.path == yours.path
        assert mine.value is not yours.value
        np.testing.assert_array_equal(mine.numpy(), yours.numpy())


def test_a_policy_shares_exactly_the_variables_of_its_networks() -> None:
    builder = builder_of()
    encoder, actor = builder.encoder(), builder.embedded_actor()
    policy = builder.policy(encoder.states, actor)
    assert isinstance(policy, EmbeddedPolicy)
    shared = {id(v.value) for v in (*encoder.states.variables, *actor.variables)}
    assert {id(variable.value) for variable in policy.variables} == shared
    assert {v.path for v in policy.variables} == {v.path for v in builder.policy_actor().variables}


def test_critics_depend_on_all_inputs() -> None:
    critic = builder_of().embedded_critic()
    inputs = [rows(4, 3), rows(4, 2), rows(4, 6), rows(4, 6, seed=1)]
    before = critic(*inputs).numpy()
    assert before.shape == (2, 4)
    assert not np.allclose(before[0], before[1])
    for index, part in enumerate(inputs):
        changed = [*inputs]
        changed[index] = part + 1.0
        assert np.abs(critic(*changed).numpy() - before).min() > 1e-6


def test_mixed_bfloat16_returns_float32() -> None:
    builder = builder_of(precision="mixed_bfloat16")
    encoder = builder.encoder()
    assert encoder.states._linear[0](rows(4, 3)).dtype == tf.bfloat16
    assert encoder(rows(4, 3), rows(4, 2)).dtype == tf.float32
    assert builder.embedded_actor()(rows(4, 3), rows(4, 6)).dtype == tf.float32
    values = builder.embedded_critic()(rows(4, 3), rows(4, 2), rows(4, 6), rows(4, 6))
    assert values.dtype == tf.float32


def clipped(values: ValueRange) -> list[float]:
    found: list[float] = values(tf.constant([-9.0, 0.5, 9.0])).numpy().tolist()
    return found


def test_values_are_clipped_to_the_range_of_all_targets() -> None:
    values = ValueRange("float32")
    assert clipped(values) == [0.0, 0.0, 0.0]
    for targets in ([1.0, 3.0], [-2.0, 2.0], [0.0]):
        values.observe(tf.constant(targets))
    assert clipped(values) == [-2.0, 0.5, 3.0]
    assert [v.path.split("/")[-1] for v in values.variables] == ["low", "high"]
    assert values.trainable_variables == []
