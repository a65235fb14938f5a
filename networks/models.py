"""What an agent asks of its models, and the variables of those that are not Keras'."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import keras
import numpy as np
import tensorflow as tf


@runtime_checkable
class Model(Protocol):
    """What an agent asks of an actor and of critics; Keras models have it.

    An actor maps observations `[B, O]` to scores `[B, A]`, critics observations and actions
    `[B, A]` to values `[n_critics, B]`. Observations may be what an encoder takes.

    Attributes:
        name: Its name in messages and graphs.
        variable_dtype: Dtype of what it returns.
    """

    name: str
    variable_dtype: str

    @property
    def variables(self) -> Sequence[Any]:
        """All its variables; `path` names each, `value` is the `tf.Variable`."""

    @property
    def trainable_variables(self) -> Sequence[Any]:
        """Those that are learned."""

    def __call__(self, *inputs: Any, training: bool = False) -> tf.Tensor:
        """Calls the model; running statistics follow what it is called with in training."""


@runtime_checkable
class CriticModel(Model, Protocol):
    """What an agent asks of critics besides."""

    @property
    def losses(self) -> Sequence[tf.Tensor]:
        """Penalties that are added to their loss."""

    def first(self, observation: Any, action: tf.Tensor, alternatives: int = 1) -> tf.Tensor:
        """Maps observations and actions to the values `[n B]` of member 0.

        Args:
            observation: `[B, O]`, or what an encoder takes.
            action: `[n B, A]`, one action for each observation, then another one for each.
            alternatives: n.
        """


def repeated(features: tf.Tensor, alternatives: int) -> tf.Tensor:
    """Repeats features `[B, ...]` for several actions each, as `CriticModel.first` takes them."""
    if alternatives == 1:
        return features
    return tf.tile(features, [alternatives] + [1] * (features.shape.rank - 1))


def copy_variables(source: Model, target: Model) -> None:
    """Gives the variables of one model the values of another one's, in their order."""
    for own, other in zip(target.variables, source.variables, strict=True):
        own.assign(other.value)


def assign_weights(model: Model, weights: Mapping[str, np.ndarray]) -> None:
    """Gives a model the weights that were saved by path.

    Raises:
        ValueError: If a name or a shape differs; the model is unchanged then.
    """
    shapes = {variable.path: tuple(variable.shape) for variable in model.variables}
    given = {path: values.shape for path, values in weights.items()}
    if shapes != given:
        raise ValueError(f"expected weights {shapes}, got {given}")
    for variable in model.variables:
        variable.assign(weights[variable.path])


def weights_by_path(model: Model) -> dict[str, np.ndarray]:
    """Copies the weights of a model, as `assign_weights` takes them."""
    return {variable.path: variable.numpy() for variable in model.variables}


def count_parameters(model: Model) -> int:
    """Counts the numbers in the variables of a model."""
    return sum(math.prod(variable.shape) for variable in model.variables)


@dataclass(frozen=True)
class CustomVariable:
    """A variable of a custom model, under a name that is the same in every process.

    Attributes:
        path: Its name, see `named_variables`.
        value: The variable, whose `shape`, `numpy` and `assign` it has, too.
        trainable: Whether it is learned.
    """

    path: str
    value: tf.Variable
    trainable: bool

    def __getattr__(self, name: str) -> Any:
        return getattr(self.value, name)


def named_variables(model: Any) -> list[CustomVariable]:
    """Lists the variables of a Keras model or layer, a `tf.Module`, or what has `variables`.

    Keras numbers layers through a process: these numbers go. TensorFlow repeats names: the second
    variable of a name gets "#2".
    """
    found: Counter[str] = Counter()
    named = []
    listed = list(getattr(model, "variables", ()))
    learned = getattr(model, "trainable_variables", [v for v in listed if v.trainable])
    trainable = {id(_raw(variable)) for variable in learned}
    for variable in listed:
        if isinstance(variable, keras.Variable):
            path = re.sub(r"_\d+(?=/|$)", "", variable.path)
        else:
            path = variable.name.removesuffix(":0")
        found[path] += 1
        unique = path if found[path] == 1 else f"{path}#{found[path]}"
        value = _raw(variable)
        named.append(CustomVariable(unique, value, id(value) in trainable))
    return named


def _raw(variable: Any) -> tf.Variable:
    return variable.value if isinstance(variable, keras.Variable) else variable


def build_optimizer(optimizer: keras.optimizers.Optimizer, learned: Sequence[Any]) -> None:
    """Creates the slots of an optimiser for the variables that it moves."""
    # Keras names slots after its own variables, and takes TensorFlow's without their names.
    optimizer.build([v.value if isinstance(v, CustomVariable) else v for v in learned])


def optimizer_variables(optimizer: keras.optimizers.Optimizer, learned: Sequence[Any]) -> list[Any]:
    """Lists what an optimiser keeps, with names that are the same in every process."""
    custom = any(isinstance(variable, CustomVariable) for variable in learned)
    is_adam = isinstance(optimizer, keras.optimizers.Adam)
    if not (custom and is_adam and len(optimizer.variables) == 2 + 2 * len(learned)):
        return list(named_variables(optimizer))
    # Adam's two slots per variable are named after variables that Keras does not name.
    kept = [
        CustomVariable("iterations", optimizer.iterations.value, False),
        CustomVariable("learning_rate", optimizer._learning_rate.value, False),
    ]
    for name, slots in (("momentum", optimizer._momentums), ("velocity", optimizer._velocities)):
        for variable, slot in zip(learned, slots, strict=True):
            kept.append(CustomVariable(f"{variable.path}/{name}", slot.value, False))
    return kept
