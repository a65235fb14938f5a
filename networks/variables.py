"""Variables of custom models, under names that are the same in every process."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf


@dataclass(frozen=True)
class CustomVariable:
    """A variable of a custom model, under a name that is the same in every process.

    Attributes:
        path: Its name, see `named_variables`.
        value: The variable.
        trainable: Whether it is learned.
    """

    path: str
    value: tf.Variable
    trainable: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return tuple(self.value.shape)

    def numpy(self) -> np.ndarray:
        """Copies its value."""
        return np.array(self.value.numpy())

    def assign(self, value: Any) -> None:
        """Gives it another value."""
        self.value.assign(value)


def named_variables(model: Any) -> list[CustomVariable]:
    """Lists the variables of a Keras model or layer, a `tf.Module`, or what has `variables`.

    Keras numbers layers through a process: these numbers go. TensorFlow repeats names: the second
    variable of a name gets "#2".
    """
    found: Counter[str] = Counter()
    named = []
    listed = list(getattr(model, "variables", ()))
    learned = getattr(model, "trainable_variables", [v for v in listed if v.trainable])
    trainable = {id(raw(variable)) for variable in learned}
    for variable in listed:
        if isinstance(variable, keras.Variable):
            path = re.sub(r"_\d+(?=/|$)", "", variable.path)
        else:
            path = variable.name.removesuffix(":0")
        found[path] += 1
        unique = path if found[path] == 1 else f"{path}#{found[path]}"
        value = raw(variable)
        named.append(CustomVariable(unique, value, id(value) in trainable))
    return named


def raw(variable: Any) -> tf.Variable:
    """Returns the TensorFlow variable inside a Keras variable or a `CustomVariable`."""
    return variable if isinstance(variable, tf.Variable) else variable.value
