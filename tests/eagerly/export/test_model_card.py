"""The model card of an export describes its network."""

from __future__ import annotations

from typing import Any

import gymnasium
import pytest

from eagerly.export.formats import FORMATS
from eagerly.export.model_card import model_card
from eagerly.export.policy_document import description_of
from tests.eagerly.export.drawn import EMBEDDING
from tests.eagerly.export.networks import BOX, NESTED, UNEVEN, made


def described(observation: gymnasium.Space[Any] = BOX, **settings: Any) -> dict[str, Any]:
    """Returns the description of a policy, with the other entries that a model card needs."""
    _, network, layout = made(observation, UNEVEN, **settings)
    about = description_of(network, layout, {"format": "onnx", "precision": "float32"})
    measured = {"examples": 1, "differences": {}, "differences_to_policy": None, "returns": None}
    run = {"agent": "td7", "env": "Box-v0", "which": "best", "seed": 0, "steps": 1000}
    return about | {"run": run | {"wrappers": []}, "measured": measured}


@pytest.mark.parametrize(
    ("settings", "embedding", "line"),
    [
        (
            {"encoder": EMBEDDING},
            {"units": 6, "hidden_sizes": (16, 12), "activation": "elu", "features": 10},
            "16 and 12 units, relu, after a state embedding (6 units) and linear state features "
            "(10); 888 parameters",
        ),
        ({"memory": "gru", "memory_units": 4}, None, "relu, after a recurrent core (gru); "),
        ({"hidden_sizes": ()}, None, "- Network: no hidden layers; "),
        ({"layer_norm": True}, None, "16 and 12 units, relu, layer normalization; "),
    ],
    ids=["embedding", "memory", "no layers", "layer norm"],
)
def test_the_model_card_describes_the_network(
    settings: dict[str, Any], embedding: dict[str, Any] | None, line: str
) -> None:
    about = described(**settings)
    assert about["network"]["embedding"] == embedding
    assert line in model_card(about, FORMATS["onnx"], "policy")


@pytest.mark.parametrize(
    ("name", "line"),
    [("policy", "from policy.runner import"), ("test", 'path.insert(0, "test")')],
)
def test_the_model_card_imports_the_export_and_no_other_package(name: str, line: str) -> None:
    assert line in model_card(described(), FORMATS["onnx"], name).replace("'", '"')


def test_the_model_card_omits_entries_that_the_policy_does_not_read() -> None:
    about = described(NESTED, ignore_entries="arm", critic_entries="flags,tool")
    card = model_card(about, FORMATS["onnx"], "policy")
    assert "- Observations: `Dict('number': Box(-5, 5, (), int32))`" in card
