"""An export says what its network consists of."""

from __future__ import annotations

from typing import Any

import pytest

from eagerly.export.formats import FORMATS
from eagerly.export.policy_document import description_of, model_card
from tests.eagerly.export.drawn import EMBEDDING
from tests.eagerly.export.networks import BOX, UNEVEN, made


def described(**settings: Any) -> dict[str, Any]:
    """The description of a policy, with what a model card needs besides."""
    _, network, layout = made(BOX, UNEVEN, **settings)
    about = description_of(network, layout, {"format": "onnx", "precision": "float32"})
    measured = {"examples": 1, "differences": {}, "differences_to_policy": None, "returns": None}
    run = {"agent": "td7", "env": "Box-v0", "which": "best", "seed": 0, "steps": 1000}
    return about | {"run": run, "measured": measured}


@pytest.mark.parametrize(
    ("settings", "embedding", "line"),
    [
        (
            {"encoder": EMBEDDING},
            {"units": 6, "hidden_sizes": (16, 12), "activation": "elu", "features": 10},
            "16 and 12 units, relu, behind an embedding of the state (6 units) and linear features "
            "of it (10); 888 parameters",
        ),
        ({"memory": "gru", "memory_units": 4}, None, "relu, behind a memory (gru); "),
        ({"layer_norm": True}, None, "16 and 12 units, relu, normalised; "),
    ],
    ids=["embedding", "memory", "layer norm"],
)
def test_what_stands_in_front_of_an_mlp_is_described(
    settings: dict[str, Any], embedding: dict[str, Any] | None, line: str
) -> None:
    about = described(**settings)
    assert about["network"]["embedding"] == embedding
    assert line in model_card(about, FORMATS["onnx"], "policy")
