"""The interface of models, which built-in and custom models implement."""

from __future__ import annotations

from typing import Any

import keras
import pytest

from eagerly import TD3Config
from eagerly.agents.builder import ModelBuilder
from eagerly.networks.models import (
    CriticModel,
    Model,
    copy_variables,
    count_parameters,
    named_variables,
)
from tests.helpers import spaces


def actor(observations: Any, actions: Any) -> Any:
    last = keras.layers.Dense(actions.shape[0], "tanh")
    return keras.Sequential([keras.Input(observations.shape), last])


def critic(observations: Any, actions: Any) -> Any:
    return keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)])


SETTINGS = {
    "ours": {},
    "with a memory": {"memory": "gru"},
    "adapted, of one critic each": {"actor": actor, "critic": critic},
    "adapted, of one factory": {"models": lambda o, a: (actor(o, a), critic(o, a)), "n_critics": 1},
}


def built(kind: str, suffix: str = "") -> tuple[Model, CriticModel]:
    return ModelBuilder(TD3Config(**SETTINGS[kind]), *spaces(4, 2), seed=0).models(suffix)


@pytest.mark.parametrize("kind", SETTINGS)
def test_every_model_implements_the_interface(kind: str) -> None:
    policy, critics = built(kind)
    assert isinstance(policy, Model)
    assert isinstance(critics, CriticModel)
    for model in (policy, critics):
        assert model.variables
        assert count_parameters(model) == sum(v.value.numpy().size for v in model.variables)
        assert all(v.path and v.trainable in (True, False) for v in model.variables)


@pytest.mark.parametrize("kind", SETTINGS)
def test_variables_are_copied_between_models(kind: str) -> None:
    (policy, _), (target, _) = built(kind), built(kind, "_target")
    for variable in policy.variables:
        variable.assign(variable.numpy() + 1.0)
    copy_variables(policy, target)
    for own, other in zip(target.variables, policy.variables, strict=True):
        assert (own.numpy() == other.numpy()).all()
        assert own.value is not other.value


def test_a_custom_variable_has_the_attributes_of_the_wrapped_variable() -> None:
    layer = keras.layers.Dense(3)
    layer.build((None, 2))
    kernel = named_variables(layer)[0]
    assert tuple(kernel.shape) == (2, 3)
    kernel.assign(kernel.numpy() * 0.0)
    assert not layer.kernel.numpy().any()
