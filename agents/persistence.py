"""Saves named variables exactly. Values that are not finite are rejected."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from eagerly.networks.models import check_same


class VariableCheckpoint:
    """A `tf.train.Checkpoint` of named groups of variables, which stores each variable by path.

    Variables are passed explicitly. From the attributes of an object, `tf.train.Checkpoint` would
    not find layers that a Keras 3 model keeps in a private list, and neither saving nor restoring
    would report the omission.

    Args:
        groups: Keras variables or `tf.Variable`s, by group name.

    Raises:
        ValueError: If two variables of a group have the same path.
    """

    def __init__(self, **groups: Iterable[Any]) -> None:
        self._groups: dict[str, dict[str, tf.Variable]] = {}
        for group, variables in groups.items():
            named = self._groups.setdefault(group, {})
            for variable in variables:
                is_tensorflow = isinstance(variable, tf.Variable)
                path = variable.name if is_tensorflow else variable.path
                if path in named:
                    raise ValueError(f"two variables of {group} are named {path}: rename a layer")
                named[path] = variable if is_tensorflow else variable.value
        self._checkpoint = tf.train.Checkpoint(**self._groups)

    @property
    def groups(self) -> dict[str, dict[str, tf.Variable]]:
        """The variables of each group, by path."""
        return self._groups

    def write(self, prefix: str) -> None:
        """Writes the files `prefix.index` and `prefix.data-*`.

        Raises:
            FloatingPointError: If a variable contains NaN or infinity. The message names it, and
                nothing is written.
            OSError: If the files cannot be written.
        """
        for group, variables in self._groups.items():
            for path, variable in variables.items():
                if variable.dtype.is_floating and not np.isfinite(variable.numpy()).all():
                    raise FloatingPointError(f"variable {path} of {group} is not finite")
        try:
            self._checkpoint.write(prefix)
        except tf.errors.OpError as error:
            raise os_error(error) from error

    def read(self, prefix: str) -> None:
        """Restores the variables from the files.

        Raises:
            ValueError: If the files contain other variables, shapes or dtypes. The message names
                one variable, and nothing is restored.
        """
        reader = tf.train.load_checkpoint(prefix)
        shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
        saved = {
            _name(key): f"{dtypes[key].name} of shape {tuple(shape)}"
            for key, shape in shapes.items()
            if key != "_CHECKPOINTABLE_OBJECT_GRAPH"
        }
        own = {
            f"{group}/{path}": f"{variable.dtype.name} of shape {tuple(variable.shape)}"
            for group, variables in self._groups.items()
            for path, variable in variables.items()
        }
        check_same(saved, own)
        self._checkpoint.read(prefix).assert_consumed()

    def read_groups(self, prefix: str, groups: Iterable[str]) -> None:
        """Restores only some groups from the files, which may contain others.

        Raises:
            ValueError: If a variable is missing or has another shape; nothing is restored.
        """
        reader = tf.train.load_checkpoint(prefix)
        keys = {_name(key): key for key in reader.get_variable_to_shape_map()}
        own = {f"{group}/{path}": v for group in groups for path, v in self._groups[group].items()}
        shapes = {name: f"of shape {tuple(variable.shape)}" for name, variable in own.items()}
        saved = {n: reader.get_tensor(keys[n]) for n in own if n in keys}
        check_same({n: f"of shape {value.shape}" for n, value in saved.items()}, shapes)
        for name, variable in own.items():
            variable.assign(tf.cast(saved[name], variable.dtype))


def check_weights(given: Any, own: Mapping[str, np.ndarray]) -> None:
    """Validates that weights match the agent's in name, shape and dtype, and are finite.

    Raises:
        ValueError: If a name is missing or unknown, or a shape or dtype differs.
        FloatingPointError: If a value is not finite.
    """
    if not isinstance(given, Mapping):
        raise ValueError(
            f"weights must map names to arrays, as returned by get_weights; got {type(given)}"
        )
    missing, unknown = own.keys() - given.keys(), given.keys() - own.keys()
    if missing or unknown:
        raise ValueError(
            "weights must have the names of this agent's weights; missing: "
            f"{', '.join(sorted(missing)) or 'none'}; "
            f"unknown: {', '.join(sorted(map(str, unknown))) or 'none'}"
        )
    for name, expected in own.items():
        try:
            values = np.asarray(given[name])
        except ValueError as error:
            raise ValueError(f"{name} must be an array: {error}") from error
        if values.shape != expected.shape or values.dtype != expected.dtype:
            raise ValueError(
                f"{name} must be {expected.dtype} of shape {expected.shape}; got {values.dtype} of "
                f"shape {values.shape}"
            )
        if not np.isfinite(values.astype(np.float64)).all():
            raise FloatingPointError(f"{name} must be finite")


def check_loadable(acting: Any, another: Any) -> None:
    """Validates that an acting model's weights can be loaded into another model, by path.

    Args:
        acting: The model that the algorithm acts with.
        another: The model built by its `Builder.policy_actor`, to load a trained policy into.

    Raises:
        ValueError: If two paths are equal, or the models differ in paths or shapes. The message
            lists the variables.
    """
    mine, other = ([(v.path, tuple(v.shape)) for v in m.variables] for m in (acting, another))
    if len(dict(mine)) < len(mine):
        raise ValueError(
            f"variables of the acting model must have different paths; got {mine}: name its layers"
        )
    if sorted(mine) != sorted(other):
        raise ValueError(
            "Builder.policy_actor must build a model with the variables of the acting model, "
            f"{mine}, to load trained policies into; got {other}"
        )


def _name(key: str) -> str:
    """Returns `group/path` for the key that `tf.train.Checkpoint` uses in a dictionary."""
    escaped = key.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE")
    return re.sub(r"\.(\.|S)", lambda found: found[1].replace("S", "/"), escaped)


def os_error(error: tf.errors.OpError) -> OSError:
    """Converts a TensorFlow error to an `OSError`; a full disk becomes `ENOSPC`."""
    full = isinstance(error, tf.errors.ResourceExhaustedError)
    text = re.sub(r"^\{\{.*?\}\} ", "", str(error.message).partition("\n")[0])
    return OSError(errno.ENOSPC if full else errno.EIO, text)
