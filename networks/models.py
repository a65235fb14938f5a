"""Interfaces of actors and critics, and access to the variables of Keras and custom models."""

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
    """The interface of actors and critics, which Keras models implement.

    An actor maps observations `[B, O]` to scores `[B, A]`. Critics map observations and actions
    `[B, A]` to values `[n_critics, B]`. Observations may also be encoder inputs.

    Attributes:
        name: Name in messages and graphs.
        variable_dtype: Dtype of the outputs.
    """

    name: str
    variable_dtype: str

    @property
    def variables(self) -> Sequence[Any]:
        """All variables. Each has a name, `path`, and a `tf.Variable`, `value`."""

    @property
    def trainable_variables(self) -> Sequence[Any]:
        """The trainable variables."""

    def __call__(self, *inputs: Any, training: bool = False) -> tf.Tensor:
        """Calls the model; in training, running statistics track its inputs."""


@runtime_checkable
class CriticModel(Model, Protocol):
    """The additional interface of critics."""

    @property
    def losses(self) -> Sequence[tf.Tensor]:
        """Penalties that are added to the loss."""

    def first(self, observation: Any, action: tf.Tensor, alternatives: int = 1) -> tf.Tensor:
        """Maps observations and actions to the values `[n B]` of member 0.

        Args:
            observation: `[B, O]`, or encoder inputs.
            action: `[n B, A]`, one action for each observation, then a second one for each, and so
                on.
            alternatives: n, the number of actions per observation.
        """


def repeated(features: tf.Tensor, alternatives: int) -> tf.Tensor:
    """Repeats features `[B, ...]` to match several actions each; see `CriticModel.first`."""
    if alternatives == 1:
        return features
    return tf.tile(features, [alternatives] + [1] * (features.shape.rank - 1))


def copy_variables(source: Model, target: Model) -> None:
    """Copies all variables from one model to another, in order."""
    for copied, variable in zip(target.variables, source.variables, strict=True):
        copied.assign(variable.value)


def assign_weights(model: Model, weights: Mapping[str, np.ndarray]) -> None:
    """Sets the weights of a model by path.

    Raises:
        ValueError: If a path or a shape differs. The model is then unchanged.
    """
    given = {path: f"of shape {values.shape}" for path, values in weights.items()}
    check_same(given, {v.path: f"of shape {tuple(v.shape)}" for v in model.variables})
    for variable in model.variables:
        variable.assign(weights[variable.path])


def check_same(saved: Mapping[str, str], current: Mapping[str, str]) -> None:
    """Compares descriptions of saved variables with those of a network, by name.

    Raises:
        ValueError: If they differ. The message names the first different variable.
    """
    for name in sorted(saved.keys() | current.keys()):
        there, here = (each.get(name, "missing") for each in (saved, current))
        if there != here:
            raise ValueError(
                "trained networks cannot change their layers, sizes or precision, but "
                f"{name} is {there} in the saved weights and {here} in this network"
            )


def weights_by_path(model: Model) -> dict[str, np.ndarray]:
    """Returns copies of a model's weights by path, as `assign_weights` expects them."""
    # TensorFlow returns a number, not an array, for a variable of shape ().
    return {variable.path: np.asarray(variable.numpy()) for variable in model.variables}


def count_parameters(model: Model) -> int:
    """Returns the number of parameters of a model, including non-trainable ones."""
    return sum(math.prod(variable.shape) for variable in model.variables)


@dataclass(frozen=True)
class CustomVariable:
    """A variable of a custom model, with a name that is the same in every process.

    Attributes:
        path: The name; see `named_variables`.
        value: The variable. Its attributes, such as `shape`, `numpy` and `assign`, are also
            available on this object.
        trainable: Whether it is trainable.
        constraint: Maps the new value to a valid one after every update, as in Keras; None for no
            constraint.
    """

    path: str
    value: tf.Variable
    trainable: bool
    constraint: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.value, name)


def named_variables(model: Any) -> list[CustomVariable]:
    """Lists the variables of a Keras model or layer, a `tf.Module`, or an object with `variables`.

    Keras numbers layers throughout a process, so these numbers are removed from the names. If a
    name then occurs twice, the second variable gets the suffix "#2".
    """
    found: Counter[str] = Counter()
    named = []
    # A model may list a shared layer twice.
    listed = {id(_raw(variable)): variable for variable in getattr(model, "variables", ())}
    learned = [variable for variable in listed.values() if variable.trainable]
    # The property of `tf.Module` finds no Keras variables, even if `variables` lists them.
    inherited = getattr(type(model), "trainable_variables", None) is tf.Module.trainable_variables
    if hasattr(model, "trainable_variables") and not inherited:
        learned = model.trainable_variables
    trainable = {id(_raw(variable)) for variable in learned}
    for variable in listed.values():
        constraint = None  # Keras applies the constraint of a `tf.Variable` itself
        if isinstance(variable, keras.Variable):
            path, constraint = re.sub(r"_\d+(?=/|$)", "", variable.path), variable.constraint
        else:
            path = variable.name.removesuffix(":0")
        found[path] += 1
        unique = path if found[path] == 1 else f"{path}#{found[path]}"
        value = _raw(variable)
        named.append(CustomVariable(unique, value, id(value) in trainable, constraint))
    return named


def _raw(variable: Any) -> tf.Variable:
    return variable.value if isinstance(variable, keras.Variable) else variable


def build_optimizer(optimizer: keras.optimizers.Optimizer, learned: Sequence[Any]) -> None:
    """Creates the slot variables of an optimizer for the learned variables."""
    # Keras names slots only after Keras variables, and ignores the names of other variables.
    optimizer.build([v.value if isinstance(v, CustomVariable) else v for v in learned])


def optimizer_variables(optimizer: keras.optimizers.Optimizer, learned: Sequence[Any]) -> list[Any]:
    """Lists the variables of an optimizer, with names that are the same in every process."""
    custom = any(isinstance(variable, CustomVariable) for variable in learned)
    is_adam = isinstance(optimizer, keras.optimizers.Adam)
    if not (custom and is_adam and len(optimizer.variables) == 2 + 2 * len(learned)):
        return list(named_variables(optimizer))
    # Keras cannot name Adam's slots after custom variables, so their names are set here.
    kept = [
        CustomVariable("iterations", optimizer.iterations.value, False),
        CustomVariable("learning_rate", optimizer._learning_rate.value, False),
    ]
    for name, slots in (("momentum", optimizer._momentums), ("velocity", optimizer._velocities)):
        for variable, slot in zip(learned, slots, strict=True):
            kept.append(CustomVariable(f"{variable.path}/{name}", slot.value, False))
    return kept
