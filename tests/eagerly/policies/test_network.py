"""An actor with a state embedding matches its equations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from eagerly.policies.architecture import ActorArchitecture, StateEmbedding
from eagerly.policies.heads import ActionHead
from eagerly.policies.network import ActorNetwork
from eagerly.policies.operations import NumpyOperations
from tests.eagerly.export.drawn import EMBEDDING, acting, actor


def test_an_embedding_matches_numbers_computed_by_hand() -> None:
    encoder = StateEmbedding(units=2, hidden_sizes=(2,), activation="elu", features=2)
    architecture = ActorArchitecture(
        observation_size=1,
        head=ActionHead(1),
        hidden_sizes=(1,),
        activation="relu",
        encoder=encoder,
    )
    weights = {
        "embedding_0/kernel": [[1.0, -1.0]],
        "embedding_0/bias": [0.0, 0.0],
        "embedding_1/kernel": [[3.0, 0.0], [0.0, 1.0]],
        "embedding_1/bias": [0.0, 1.0],
        "features/kernel": [[1.0, -2.0]],
        "features/bias": [0.0, -2.0],
        "hidden_0/kernel": [[1.0], [10.0], [100.0], [1000.0]],
        "hidden_0/bias": [0.5],
        "action/kernel": [[0.25]],
        "action/bias": [-1.0],
    }
    network = ActorNetwork(architecture, {name: np.array(w) for name, w in weights.items()})
    (found,) = network.outputs(NumpyOperations(), np.array([[2.0]])).ravel()
    features = [2 / 4, -6 / 4]  # 2 and -6, divided by their mean absolute value, 4
    below = math.exp(-2.0) - 1.0  # the elu of -2
    # The embedding is (6, `below` + 1), divided by the mean absolute value.
    embedding = [6 / ((7 + below) / 2), (below + 1) / ((7 + below) / 2)]
    hidden = features[0] + 10 * features[1] + 100 * embedding[0] + 1000 * embedding[1] + 0.5
    assert hidden > 0.0
    assert found == pytest.approx(hidden * 0.25 - 1.0, rel=1e-12)


def test_scaling_the_last_layers_of_embedding_and_features_has_no_effect() -> None:
    network = actor(encoder=EMBEDDING, dtype="float64")
    rows = np.random.default_rng(0).normal(size=(20, 5))
    expected = acting(network)(rows)
    for layer, factor in (("features", 7.0), ("embedding_2", 0.1)):
        for part in ("kernel", "bias"):
            network.weights[f"{layer}/{part}"] *= factor
    np.testing.assert_allclose(acting(network)(rows), expected, rtol=1e-12)
    network.weights["embedding_1/kernel"] *= 7.0
    assert np.abs(acting(network)(rows) - expected).max() > 0.01


def test_a_single_row_gives_the_same_scores_as_in_a_batch() -> None:
    act = acting(actor(encoder=EMBEDDING, normalized=True))
    rows = np.random.default_rng(0).normal(size=(9, 5)).astype(np.float32)
    alone = np.concatenate([act(row[np.newaxis]) for row in rows])
    np.testing.assert_allclose(alone, act(rows), rtol=0, atol=1e-6)
    assert (act(rows[:0]).shape, alone.dtype) == ((0, 2), np.float32)
