"""Adapters for custom models, which can be any callable that owns its variables."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, ClassVar, Protocol

import keras
import numpy as np
import tensorflow as tf

from eagerly.errors import summary
from eagerly.networks.actor import scores
from eagerly.networks.models import CustomVariable, named_variables, repeated
from eagerly.networks.normalization import ObservationNormalization
from eagerly.networks.tracing import traced
from eagerly.policies.heads import ActionHead

# Batch sizes of trial calls, which are unlikely to equal the number of critics.
_ROWS = 17, 19


class UserModel(Protocol):
    """The interface of a user's model, which Keras models, `tf.Module` and Sonnet modules have.

    A model may also have attributes `trainable_variables` (otherwise taken from `variables`),
    `losses` and `name`, and its `__call__` an argument `training` or `is_training`.
    """

    @property
    def variables(self) -> Sequence[Any]:
        """All Keras or TensorFlow variables, at least after the first call."""

    def __call__(self, *inputs: Any) -> tf.Tensor:
        """Maps batches of observations, and for a critic of actions, to the output."""


class CustomModel:
    """Adapts a user's model to the interface of actors and critics.

    Args:
        model: The model.
        observations: O, the length of an observation.
        head: Maps an actor's logits to scores. It determines A, the length of an action, and M, the
            number of mask columns at the end of an observation, which the model does not receive.
        name: Name of the model in graphs.
        dtype: Dtype of the outputs.
        normalization: Applied to observations first.
        columns: The columns `[O - M]` of an observation in the order in which the model receives
            them; None if it receives them unchanged.

    Attributes:
        model: As given.

    Raises:
        ValueError: If the model cannot be called in its role, owns no trainable variables, creates
            variables in every call, or uses variables that it does not own. Also if the outputs do
            not depend on a variable or an input, have the wrong shape, or are out of bounds.
    """

    role: ClassVar[str]

    def __init__(
        self,
        model: UserModel,
        observations: int,
        head: ActionHead,
        *,
        name: str,
        dtype: str,
        normalization: ObservationNormalization | None,
        columns: np.ndarray | None = None,
    ) -> None:
        if not callable(model):
            raise ValueError(
                f"the factory of the {self.role} must return a callable model; it returned "
                f"{model!r}"
            )
        self.model, self._head, self._normalization = model, head, normalization
        self.name, self.variable_dtype, self._columns = name, dtype, columns
        inputs = len(getattr(model, "inputs", None) or ()) if isinstance(model, keras.Model) else 0
        self._takes_list = inputs > 1
        self._takes_row = inputs == 1 or isinstance(model, keras.Sequential)
        self._training = _training_argument(model)
        self.variables: list[CustomVariable] = []
        self._inputs = {"observation": observations}
        if self.role == "critic":
            self._inputs["action"] = head.size
        for output in self._trial_outputs():
            self._check_values(output)

    @property
    def needs_autograph(self) -> bool:
        """True if the model may branch on tensors in Python. Keras models never can."""
        module = getattr(type(self.model).__call__, "__module__", "")  # functions have none
        return not module.startswith("keras.")

    @property
    def trainable_variables(self) -> list[CustomVariable]:
        """The trainable variables."""
        return [variable for variable in self.variables if variable.trainable]

    @property
    def losses(self) -> list[tf.Tensor]:
        """Penalties declared by a Keras model."""
        return [tf.cast(loss, self.variable_dtype) for loss in getattr(self.model, "losses", ())]

    def __call__(self, *inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Maps observations to scores `[B, A]`, or observations and actions to `[n_critics, B]`."""
        return self._convert_output(self._call_model(*inputs, training=training), inputs[0])

    def _call_model(self, *inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        arguments: Any = self._preprocess(*inputs)
        if self._takes_list:
            arguments = [list(arguments)]
        elif self._takes_row and len(arguments) > 1:
            arguments = [tf.concat(arguments, axis=-1)]
        more = {self._training: training} if self._training else {}
        with tf.name_scope(self.name):
            found = self.model(*arguments, **more)
        return tf.cast(found, self.variable_dtype)

    def _convert_output(self, found: tf.Tensor, observation: tf.Tensor) -> tf.Tensor:
        """Validates the shape of the model's output and converts it to scores or values."""
        raise NotImplementedError

    def _check_values(self, output: tf.Tensor) -> None:
        """Raises a `ValueError` if outputs are not finite or out of bounds."""
        raise NotImplementedError

    @property
    def _label(self) -> str:
        """The description of the model in messages: its role and class, and its name, if any."""
        name = getattr(self.model, "name", None)
        return f"the {self.role} {type(self.model).__name__}" + (f" {name!r}" if name else "")

    def _preprocess(self, *inputs: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Normalizes observations, removes their mask and sorts their columns."""
        observation, *more = inputs
        if self._normalization is not None:
            observation = self._normalization(observation)
        visible = self._head.visible(observation)
        if self._columns is not None:
            visible = tf.gather(visible, self._columns, axis=-1)
        return visible, *more

    def _trial_outputs(self) -> list[tf.Tensor]:
        """Calls the model with random inputs and validates its variables.

        Returns:
            The outputs for small and for large inputs.
        """
        draws, outputs = np.random.default_rng(0), []
        # The first call may create variables.
        for rows, scale in ((_ROWS[0], 1), (_ROWS[0], 1), (_ROWS[1], 100)):
            inputs = [
                tf.constant(draws.uniform(-scale, scale, (rows, size)), self.variable_dtype)
                for size in self._inputs.values()
            ]
            output, tape, created = self._trial_call(inputs)
            if not self.variables:
                self.variables = named_variables(self.model)
                if self._normalization is not None:
                    self.variables += named_variables(self._normalization)
                if not self.trainable_variables:
                    raise ValueError(
                        f"{self._label} has no trainable variables: store them as attributes of a "
                        "keras.Model or tf.Module, or list them in its `variables`, for example if "
                        "a tf.Module contains Keras layers"
                    )
                continue
            if created:
                raise ValueError(
                    f"{self._label} creates variable {created[0]!r} in every call: create it once, "
                    "in the constructor"
                )
            outputs.append(output)
            self._check_variables(tape, output, inputs)
        return outputs

    def _trial_call(self, inputs: list[tf.Tensor]) -> tuple[tf.Tensor, tf.GradientTape, list[str]]:
        """Calls the model. Returns its output, the tape, and the names of variables it created."""
        created: list[str] = []

        def record(make: Callable[..., Any], **given: Any) -> Any:
            created.append(str(given.get("name") or "unnamed"))
            return make(**given)

        pairs = zip(self._inputs, inputs, strict=True)
        shapes = " and ".join(f"{name} {tuple(part.shape)}" for name, part in pairs)
        with tf.variable_creator_scope(record), tf.GradientTape() as tape:
            tape.watch(inputs)
            with self._wrap_errors(f"cannot be called with {inputs[0].dtype.name} {shapes}:"):
                found = self._call_model(*inputs)
            output = self._convert_output(found, inputs[0])
        return output, tape, created

    @contextmanager
    def _wrap_errors(self, problem: str) -> Iterator[None]:
        """Converts exceptions of the user's model to a `ValueError` that names the problem."""
        try:
            yield
        except Exception as error:
            raise ValueError(f"{self._label} {problem} {summary(error)}") from error

    def _check_variables(
        self, tape: tf.GradientTape, output: tf.Tensor, inputs: list[tf.Tensor]
    ) -> None:
        ids = {id(variable.value) for variable in self.variables}
        for variable in tape.watched_variables():
            if id(variable) not in ids:
                raise ValueError(
                    f"{self._label} uses variable {variable.name!r}, which is not among its "
                    "variables: store it as an attribute of the model, of a Keras layer in a Keras "
                    "model, or of a tf.Module in a tf.Module; if one kind contains the other, list "
                    "all variables in a property `variables`"
                )
        trainable = self.trainable_variables
        with self._wrap_errors("is not differentiable:"):
            gradients = tape.gradient(output, [*inputs, *(v.value for v in trainable)])
        for name in self._inputs:
            gradient = gradients.pop(0)
            if gradient is None and (name == "action" or not self._depends_on_observation(inputs)):
                raise ValueError(f"the output of {self._label} does not depend on the {name}")
        idle = getattr(self.model, "without_gradient", lambda *inputs: ())(
            *self._preprocess(*inputs)
        )
        for variable, gradient in zip(trainable, gradients, strict=True):
            if gradient is None or variable.path in idle:
                raise ValueError(
                    f"{self._label} has a variable without gradient, {variable.path!r}, because "
                    "the output does not depend on it: remove it, or create it with "
                    "trainable=False"
                )

    def _depends_on_observation(self, inputs: list[tf.Tensor]) -> bool:
        """Returns whether outputs change with the observation, even if it gets no gradient."""
        observation, *more = inputs
        one, other = (self(rows, *more).numpy() for rows in (observation, observation[::-1]))
        return not np.array_equal(one, other)

    def check_mode(self, mode: str) -> None:
        """Compiles the model as training in `mode` does, and an actor also as acting does.

        Raises:
            ValueError: If the model cannot be compiled.
        """
        if mode == "xla" and not getattr(self.model, "compiles", True):
            raise ValueError(
                f"XLA cannot compile the model {self.name}: set mode to graph or eager"
            )
        acts = self.role == "actor"
        if acts or mode != "eager":
            self._compile(
                None if acts else _ROWS[0],
                "be called in a graph: use TensorFlow operations on its inputs instead of Python",
            )
        if mode == "xla":
            problem = "be compiled by XLA: set mode to graph or eager"
            self._compile(_ROWS[0], problem, jit_compile=True)

    def _compile(self, rows: int | None, problem: str, *, jit_compile: bool = False) -> None:
        sizes = self._inputs.values()
        specs = [tf.TensorSpec((rows, size), self.variable_dtype) for size in sizes]
        with self._wrap_errors(f"cannot {problem}."):
            call = traced(self, *specs, jit_compile=jit_compile)
            if jit_compile:  # XLA compiles in the first call
                call(*(tf.zeros(spec.shape, spec.dtype) for spec in specs))


class CustomActor(CustomModel):
    """Adapts a user's actor; see `CustomModel` for the arguments.

    The model maps observations without mask columns `[B, O - M]` to outputs `[B, A]`: actions in
    [-1, 1], then one logit for each value of each discrete choice.
    """

    role = "actor"

    def _trial_outputs(self) -> list[tf.Tensor]:
        outputs = super()._trial_outputs()
        # Outputs may be in bounds only because the weights are small, so try large ones.
        weights = [(variable, variable.numpy()) for variable in self.trainable_variables]
        try:
            for variable, values in weights:
                # Zeros become large, too, because a last layer may be initialized with zeros.
                variable.assign(np.where(values == 0, 1000, 1000 * values))
            large = self(tf.ones((1, self._inputs["observation"]), self.variable_dtype))
        finally:
            for variable, values in weights:
                variable.assign(values)
        return [*outputs, large] if np.isfinite(large.numpy()).all() else outputs

    def _check_values(self, output: tf.Tensor) -> None:
        actions = output.numpy()[:, : self._head.continuous]
        if np.isnan(actions).any():
            raise ValueError(f"{self._label} must return finite actions; got NaN")
        largest = float(np.abs(actions).max(initial=0.0))
        if largest > 1.0:
            these = "its output"
            if self._head.choices:
                these = f"its first {self._head.continuous} outputs, not to logits"
            raise ValueError(
                f"{self._label} must return actions in [-1, 1]; got an absolute value of "
                f"{largest:g}: apply a tanh to {these}"
            )

    def _convert_output(self, found: tf.Tensor, observation: tf.Tensor) -> tf.Tensor:
        size, count = self._head.size, self._head.continuous
        if found.shape.rank != 2 or found.shape[1] != size:
            parts = f" ({count} in [-1, 1], {size - count} logits)" if self._head.choices else ""
            raise ValueError(
                f"{self._label} must return actions of shape [B, {size}]{parts}; got {found.shape} "
                f"for B = {observation.shape[0]}"
            )
        return scores(self._head, found, observation)


class CustomCritic(CustomModel):
    """Adapts a user's critics; see `CustomModel` for the other arguments.

    A model maps observations without mask columns `[B, O - M]` and actions `[B, A]` to values
    `[n_critics, B]`. A single critic may also return `[B]` or `[B, 1]`.

    Args:
        models: One model with all critics, or one for each critic. Only as many are taken as are
            needed, and each creates its variables before the next is taken.
        n_critics: The number of critics.

    Raises:
        ValueError: If the models have neither one nor `n_critics` members.
    """

    role = "critic"

    def __init__(self, models: Iterable[UserModel], n_critics: int, **more: Any) -> None:
        if callable(models):
            raise ValueError(f"models must be a list of models; got {models!r}: pass [model]")
        models = iter(models)
        if (first := next(models, None)) is None:
            raise ValueError("models must contain at least one model; got none")
        self._others: list[CustomCritic] = []
        super().__init__(first, **more)
        if self.n_critics == 1:
            self._others = [
                CustomCritic([model], 1, **more) for model in islice(models, n_critics - 1)
            ]
            self.n_critics += len(self._others)
        if self.n_critics != n_critics:
            raise ValueError(
                f"{self._label} has {self.n_critics} members, but n_critics is {n_critics}: return "
                f"[{n_critics}, B], or set n_critics to {self.n_critics}, if the agent has it"
            )
        if self._others:
            self.variables = [
                dataclasses.replace(variable, path=f"{index}/{variable.path}")
                for index, member in enumerate([self, *self._others])
                for variable in member.variables
            ]

    @property
    def needs_autograph(self) -> bool:
        """True if a member may branch on tensors in Python."""
        return super().needs_autograph or any(member.needs_autograph for member in self._others)

    @property
    def losses(self) -> list[tf.Tensor]:
        """Penalties declared by Keras models."""
        return super().losses + [loss for member in self._others for loss in member.losses]

    def __call__(self, *inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Maps observations `[B, O]` and actions `[B, A]` to values `[n_critics, B]`."""
        values = super().__call__(*inputs, training=training)
        if not self._others:
            return values
        others = [member(*inputs, training=training) for member in self._others]
        return tf.concat([values, *others], axis=0)

    def _check_values(self, output: tf.Tensor) -> None:
        if not np.isfinite(output.numpy()).all():
            raise ValueError(f"{self._label} must return finite values; got {output}")
        self.n_critics = int(output.shape[0])

    def _convert_output(self, found: tf.Tensor, observation: tf.Tensor) -> tf.Tensor:
        rows = observation.shape[0]
        if found.shape.rank == 1 or (found.shape.rank == 2 and found.shape[1] == 1 != rows):
            found = tf.reshape(found, [1, -1])
        if found.shape.rank != 2 or found.shape[1] != rows:
            raise ValueError(
                f"{self._label} must return values of shape [n_critics, B], [B] or [B, 1]; got "
                f"{found.shape} for B = {rows}"
            )
        return found

    def first(self, observation: tf.Tensor, action: tf.Tensor, alternatives: int = 1) -> tf.Tensor:
        """Maps observations and actions to the values of member 0; see `CriticModel.first`."""
        return super().__call__(repeated(observation, alternatives), action)[0]


def _training_argument(model: Any) -> str:
    """Returns the name of the model's training flag, or "" if it has none."""
    if isinstance(model, keras.layers.Layer):
        return "training"  # Keras passes it to inner layers, whether or not `call` accepts it
    try:
        names = inspect.signature(model).parameters
    except (TypeError, ValueError):
        return ""
    return next((name for name in ("training", "is_training") if name in names), "")
