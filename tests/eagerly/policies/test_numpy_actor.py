"""NumPy actors equal their TensorFlow models, and settings determine their architectures."""

from __future__ import annotations

import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces

from eagerly.agents.builder import ModelBuilder
from eagerly.agents.config import AgentConfig
from eagerly.agents.td7 import TD7Builder
from eagerly.agents.td7_config import TD7Config
from eagerly.networks import KerasPolicy
from eagerly.policies.numpy_actor import numpy_actor
from eagerly.policies.weights import named

BOX = spaces.Box(-1.0, 1.0, (3,))
CAMERA = spaces.Box(0, 255, (40, 36, 3), np.uint8)
SYMBOLS = spaces.Box(0, 255, (7, 7, 3), np.uint8)
STACKED = spaces.Box(0, 255, (3, 40, 36, 1), np.uint8)
SPACES: dict[str, tuple[gymnasium.Space, gymnasium.Space]] = {
    "box": (BOX, spaces.Box(-1, 1, (2,))),
    "masked": (BOX, spaces.MultiDiscrete([3, 2])),
    "mixed": (BOX, spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Discrete(4)})),
    "choice": (spaces.Discrete(5), spaces.Box(-1, 1, (2,))),
    "dict": (
        spaces.Dict({"v": BOX, "w": spaces.Box(-9, 9, (2, 2)), "c": spaces.MultiDiscrete([3, 2])}),
        spaces.MultiDiscrete([3, 2]),
    ),
    "camera": (spaces.Dict({"v": BOX, "camera": CAMERA}), spaces.Box(-1, 1, (2,))),
    "symbols": (SYMBOLS, spaces.Discrete(4)),
    "stacked": (STACKED, spaces.Box(-1, 1, (2,))),
    "vectors": (spaces.Dict(v=BOX, w=spaces.Box(-9, 9, (2, 2))), spaces.Box(-1, 1, (2,))),
}
NORMALIZED: dict[str, Any] = {"normalize_observations": True}
# A TD7 actor has a state embedding.
TD7: dict[str, Any] = {"agent": "td7", "embedding_size": 10, "encoder_hidden_sizes": (14,)}
CASES = [
    ("box", {}),
    ("box", NORMALIZED | {"layer_norm": True, "activation": "silu"}),
    ("box", {"precision": "float64", "normalize_observations": True}),
    ("masked", NORMALIZED),
    ("mixed", {}),
    ("choice", {}),
    ("dict", NORMALIZED | {"activation": "elu"}),
    ("camera", NORMALIZED),
    ("symbols", {}),
    ("stacked", {"precision": "float64"}),
    ("box", TD7),
    ("choice", TD7 | {"activation": "tanh", "encoder_activation": "silu"}),
    ("vectors", TD7 | NORMALIZED | {"precision": "float64"}),
]
MEMORIES = [
    ("box", "gru", NORMALIZED),
    ("box", "lstm", {"precision": "float64"}),
    ("masked", "lstm", {}),
    ("dict", "gru", NORMALIZED),
    ("mixed", "attention", NORMALIZED | {"layer_norm": True}),
    ("box", "attention", {"precision": "float64"}),
]


def built(name: str, settings: dict[str, Any]) -> tuple[Any, ModelBuilder]:
    """Builds an actor with weights and statistics that differ from the initial ones.

    Args:
        name: A key of `SPACES`.
        settings: Settings of the agent; "agent": "td7" builds an actor of TD7.
    """
    given = {"hidden_sizes": (16, 12)} | settings
    builder: ModelBuilder
    if given.pop("agent", None) == "td7":
        builder = embedding = TD7Builder(TD7Config(**given), *SPACES[name], seed=3)
        actor = embedding.policy_actor()
    else:
        builder = ModelBuilder(AgentConfig(**given), *SPACES[name], seed=3)
        actor = builder.actor()
    random = np.random.default_rng(1)
    for variable in actor.variables:
        moved = variable.numpy() + 0.1 * random.normal(size=variable.shape)
        if "normalization" in variable.path:  # columns without scaling keep their statistics
            moved = np.where(builder.observations.scalable, moved, variable.numpy())
        variable.assign(moved)
    return actor, builder


def observed(builder: ModelBuilder, count: int) -> np.ndarray:
    """Draws rows `[N, O]` of the observation space, with masks."""
    space, random = builder.observations.space, np.random.default_rng(2)
    space.seed(4)
    rows = np.stack([builder.observations.flatten(space.sample()) for _ in range(count)])
    if masked := builder.observations.masked:
        rows[:, -masked:] = random.integers(0, 2, (count, masked))
        for segment in builder.actions.segments():
            first = segment.start - builder.actions.continuous - masked
            rows[:, first] = 1.0  # the first choice is always valid
    return rows


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_a_numpy_actor_equals_its_model(name: str, settings: dict[str, Any]) -> None:
    actor, builder = built(name, settings)
    rows = observed(builder, 5)
    scores = actor(tf.constant(rows, actor.variable_dtype)).numpy()
    found = KerasPolicy(actor)(rows)
    assert found.dtype == scores.dtype
    exact = 1e-12 if settings.get("precision") == "float64" else 2e-6
    np.testing.assert_allclose(found, scores, rtol=exact, atol=exact)


@pytest.mark.parametrize("name", ["box", "camera", "symbols", "stacked"])
def test_an_empty_batch_gives_an_empty_result(name: str) -> None:
    actor, builder = built(name, {})
    found = actor.snapshot()(observed(builder, 1)[:0])
    assert (found.shape, found.dtype) == ((0, builder.actions.size), np.float32)


@pytest.mark.parametrize(("name", "kind", "settings"), MEMORIES)
def test_a_recurrent_numpy_actor_equals_its_model_over_an_episode(
    name: str, kind: str, settings: dict[str, Any]
) -> None:
    more = {"attention_heads": 2} if kind == "attention" else {}
    memory = {"memory": kind, "memory_units": 8, "sequence_length": 6}
    actor, builder = built(name, settings | memory | more)
    snapshot, random = actor.snapshot(), np.random.default_rng(5)
    state, other = snapshot.initial_state(4), actor.initial_state(4)
    exact = 1e-12 if settings.get("precision") == "float64" else 1e-5
    for _ in range(10):
        rows = observed(builder, 4)
        before = random.uniform(-1, 1, (4, builder.actions.size)), random.normal(size=4)
        found, state = snapshot.step(rows, *before, state)
        given = (tf.constant(part, actor.variable_dtype) for part in (rows, *before))
        scores, other = actor.step(*given, [tf.constant(part) for part in other])
        np.testing.assert_allclose(found, scores, rtol=exact, atol=exact)
    for mine, its in zip(state, other, strict=True):
        np.testing.assert_allclose(mine, its, rtol=exact, atol=exact)


@pytest.mark.parametrize(
    ("name", "settings"),
    [*CASES, *((name, {**s, "memory": kind}) for name, kind, s in MEMORIES)],
)
def test_settings_and_spaces_determine_the_architecture(
    name: str, settings: dict[str, Any]
) -> None:
    actor, builder = built(name, settings)
    architecture = builder.config.actor_architecture(builder.observations, builder.actions)
    assert architecture == actor.architecture
    weights = named({variable.path: variable.numpy() for variable in actor.variables})
    assert {path: values.shape for path, values in weights.items()} == architecture.shapes()


def test_weights_of_another_actor_are_rejected() -> None:
    actor, _ = built("box", {})
    weights = named({variable.path: variable.numpy() for variable in actor.variables})
    weights["hidden_1/kernel"] = weights["hidden_1/kernel"][:, :-1]
    message = r"hidden_1/kernel is \(16, 11\), expected \(16, 12\)"
    with pytest.raises(ValueError, match=message):
        numpy_actor(actor.architecture, weights)
    del weights["hidden_1/kernel"]
    with pytest.raises(ValueError, match="hidden_1/kernel is missing"):
        numpy_actor(actor.architecture, weights)


def test_a_numpy_actor_can_be_pickled() -> None:
    actor, builder = built("dict", NORMALIZED)
    rows = observed(builder, 3)
    snapshot = actor.snapshot()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(snapshot))(rows), snapshot(rows))
