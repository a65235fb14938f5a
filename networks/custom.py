"""Custom models: adapters that let an agent use any callable that owns its variables."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from eagerly.networks.critic import Critic
from eagerly.networks.heads import scores
from eagerly.networks.normalization import ObservationNormalization
from eagerly.networks.variables import CustomVariable, named_variables
from eagerly.policies.heads import ActionHead

# How many rows a model is tried with: numbers of critics that nobody has.
_ROWS = 17, 19


class CustomModel:
    """Adapts a user's model to what an agent asks of an actor or a critic.

    Args:
        model: The model.
        role: "actor" or "critic", for messages.
        name: Name under which the graph shows it.
        dtype: Dtype of what it returns.
        normalization: What observations go through first.
        masked: M, how many columns at the end of an observation are a mask; the model gets none
            of them.

    Attributes:
        name: Name under which the graph shows it.
        compute_dtype, variable_dtype: Dtype of what it returns.
        variables: All its variables.
        trainable_variables: Those that are learned.
        compiles: Whether XLA can compile it.

    Raises:
        ValueError: If it is not called as a model of that role, owns no variables, creates some in
            every call, uses some that it does not own, or has some that its output does not
            depend on.
    """

    def __init__(
        self,
        model: Any,
        role: str,
        *,
        name: str,
        dtype: str,
        normalization: ObservationNormalization | None,
        masked: int = 0,
    ) -> None:
        if not callable(model):
            raise ValueError(
                f"the factory of the {role} must return a callable model; it returned {model!r}"
            )
        self._model, self._role, self._normalization = model, role, normalization
        self._masked = masked
        self.name, self.compute_dtype, self.variable_dtype = name, dtype, dtype
        inputs = len(getattr(model, "inputs", None) or ()) if isinstance(model, keras.Model) else 0
        self._takes_list = inputs > 1
        self._takes_row = inputs == 1 or isinstance(model, keras.Sequential)
        self._training = _training_argument(model)
        self.compiles = bool(getattr(model, "compiles", True))
        self.variables: list[CustomVariable] = []
        self._sizes: tuple[int, ...] = ()

    @property
    def trainable_variables(self) -> list[CustomVariable]:
        """Those that are learned."""
        return [variable for variable in self.variables if variable.trainable]

    @property
    def losses(self) -> list[tf.Tensor]:
        """Penalties that a Keras model declares."""
        return list(getattr(self._model, "losses", ()))

    def __call__(self, *inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Calls the model with an observation, and as a critic with an action beside it."""
        raise NotImplementedError

    def count_params(self) -> int:
        """Counts the numbers in its variables."""
        return sum(math.prod(variable.shape) for variable in self.variables)

    def training(self, *inputs: tf.Tensor) -> tf.Tensor:
        """Calls the model as one that is being trained, which running statistics ask for."""
        return self(*inputs, training=True)

    def get_weights(self) -> list[np.ndarray]:
        """Copies the values of all variables."""
        return [variable.numpy() for variable in self.variables]

    def set_weights(self, values: Sequence[np.ndarray]) -> None:
        """Gives all variables other values."""
        for variable, value in zip(self.variables, values, strict=True):
            variable.assign(value)

    def _called(self, *inputs: tf.Tensor, training: bool) -> tf.Tensor:
        inputs = self._prepared(*inputs)
        arguments: Any = inputs
        if self._takes_list:
            arguments = [list(inputs)]
        elif self._takes_row:
            arguments = [tf.concat(inputs, axis=-1)] if len(inputs) > 1 else inputs
        more = {self._training: training} if self._training else {}
        with tf.name_scope(self.name):
            found = self._model(*arguments, **more)
        return tf.cast(found, self.variable_dtype)

    def _prepared(self, *inputs: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Scales observations, and takes their mask away."""
        observation, *more = inputs
        if self._normalization is not None:
            observation = self._normalization(observation)
        if self._masked:
            observation = observation[:, : -self._masked]
        return observation, *more

    def _examine(self, *sizes: int) -> list[tf.Tensor]:
        """Tries the model with rows of random numbers of these sizes, and looks at its variables.

        Returns:
            What it gave for small and for large numbers.
        """
        draws, self._sizes = np.random.default_rng(0), sizes
        outputs = []
        # Variables may come to be in the first call.
        for rows, scale in ((_ROWS[0], 1), (_ROWS[0], 1), (_ROWS[1], 100)):
            inputs = [
                tf.constant(draws.uniform(-scale, scale, (rows, size)), self.variable_dtype)
                for size in sizes
            ]
            created: list[str] = []

            def spy(make: Callable[..., Any], created: list[str] = created, **given: Any) -> Any:
                created.append(str(given.get("name") or "without a name"))
                return make(**given)

            try:
                with tf.variable_creator_scope(spy), tf.GradientTape() as tape:
                    tape.watch(inputs)
                    output = self(*inputs)
            except ValueError as error:
                if str(error).startswith(f"the {self._role}"):
                    raise
                raise self._failed(inputs, error) from error
            except Exception as error:  # whatever the model of somebody else raises
                raise self._failed(inputs, error) from error
            if not self.variables:
                self.variables = named_variables(self._model)
                if self._normalization is not None:
                    self.variables += named_variables(self._normalization)
                if not self.trainable_variables:
                    raise ValueError(
                        f"the {self._role} {self.said} owns no variables that can be learned: "
                        "keep them as attributes of a keras.Model or tf.Module, or list them in "
                        "its `variables`, as where a tf.Module holds Keras layers"
                    )
                continue
            if created:
                raise ValueError(
                    f"the {self._role} {self.said} creates variable {created[0]!r} in every call: "
                    "create it once, in its constructor"
                )
            outputs.append(output)
            self._check_variables(tape, output, inputs)
        return outputs

    def _check_variables(
        self, tape: tf.GradientTape, output: tf.Tensor, inputs: list[tf.Tensor]
    ) -> None:
        own = {id(variable.value) for variable in self.variables}
        for variable in tape.watched_variables():
            if id(variable) not in own:
                raise ValueError(
                    f"the {self._role} {self.said} uses variable {variable.name!r}, which is not "
                    "among its variables: keep it as an attribute of the model, of a Keras layer "
                    "in a Keras model, or of a tf.Module in a tf.Module; where one kind holds the "
                    "other, list them all in a property `variables`"
                )
        trainable = self.trainable_variables
        sources = [*inputs, *(variable.value for variable in trainable)]
        try:
            gradients = tape.gradient(output, sources)
        except Exception as error:  # whatever the model of somebody else raises
            raise ValueError(
                f"the {self._role} {self.said} has no gradient: {_said_briefly(error)}"
            ) from error
        for name, gradient in zip(
            ("observation", "action"), gradients[: len(inputs)], strict=False
        ):
            if gradient is None and (name == "action" or not self._tells_apart(inputs)):
                raise ValueError(
                    f"what the {self._role} {self.said} returns does not depend on the {name}"
                )
        idle = getattr(self._model, "without_gradient", lambda *inputs: ())(
            *self._prepared(*inputs)
        )
        for variable, gradient in zip(trainable, gradients[len(inputs) :], strict=True):
            if gradient is None or variable.path in idle:
                raise ValueError(
                    f"the {self._role} {self.said} has a variable without gradient, "
                    f"{variable.path!r}: what it returns does not depend on it; remove it, or "
                    "create it with trainable=False"
                )

    def _tells_apart(self, inputs: list[tf.Tensor]) -> bool:
        """Whether other observations give something else; a gradient nobody asks for."""
        observation, *more = inputs
        one, other = (self(rows, *more).numpy() for rows in (observation, observation[::-1]))
        return not np.array_equal(one, other)

    @property
    def said(self) -> str:
        """How messages name the model: its class, and its name if it has one."""
        name = getattr(self._model, "name", None)
        return f"{type(self._model).__name__}" + (f" {name!r}" if name else "")

    def _failed(self, inputs: list[tf.Tensor], error: Exception) -> ValueError:
        names = ("observation", "action")[: len(inputs)]
        shapes = " and ".join(
            f"{name} {tuple(part.shape)}" for name, part in zip(names, inputs, strict=True)
        )
        return ValueError(
            f"the {self._role} {self.said} cannot be called with {inputs[0].dtype.name} of "
            f"{shapes}: {_said_briefly(error)}"
        )

    def check_mode(self, mode: str) -> None:
        """Compiles a call, as training in `mode` will, and as acting does in every mode.

        Raises:
            ValueError: If that is impossible.
        """
        if mode == "xla" and not self.compiles:
            raise ValueError(
                f"XLA cannot compile what {self.name} is made of: set mode to graph, or eager"
            )
        acts = self._role == "actor"
        if acts or mode != "eager":
            self._compile(
                None if acts else _ROWS[0],
                "in a graph: let it call TensorFlow's operations on its inputs, and no Python",
            )
        if mode == "xla":
            self._compile(_ROWS[0], "by XLA: set mode to graph, or eager", jit_compile=True)

    def _compile(self, rows: int | None, problem: str, *, jit_compile: bool = False) -> None:
        call = tf.function(self, jit_compile=jit_compile)
        try:
            specs = [tf.TensorSpec((rows, size), self.variable_dtype) for size in self._sizes]
            compiled = call.get_concrete_function(*specs)
            if jit_compile:  # it is done in the first call
                compiled(*(tf.zeros(spec.shape, spec.dtype) for spec in specs))
        except Exception as error:  # whatever the model of somebody else raises
            raise ValueError(
                f"the {self._role} {self.said} cannot be called {problem}. {_said_briefly(error)}"
            ) from error


class CustomActor(CustomModel):
    """Adapts a user's actor; the arguments are those of `CustomModel`.

    Args:
        model: Maps `[B, O - M]` to `[B, A]`: actions in [-1, 1], then a logit for each value of
            each discrete choice.
        observations: O.
        head: What makes scores of logits.

    Raises:
        ValueError: See `CustomModel`; also if what it returns has another shape, or leaves [-1, 1].
    """

    def __init__(self, model: Any, observations: int, head: ActionHead, **more: Any) -> None:
        super().__init__(model, "actor", masked=head.masked, **more)
        self._head = head
        for output in self._examine(observations):
            self._check_bounds(output)
        # An output that is small because its weights are is not bounded.
        before = self.get_weights()
        try:
            for variable in self.trainable_variables:
                variable.assign(1000 * variable.numpy())
            large = self(tf.ones((1, observations), self.variable_dtype))
        finally:
            self.set_weights(before)
        if np.isfinite(large.numpy()).all():
            self._check_bounds(large)

    def _check_bounds(self, output: tf.Tensor) -> None:
        actions = output.numpy()[:, : self._head.continuous]
        if np.isnan(actions).any():
            raise ValueError(f"the actor {self.said} must return finite actions; got NaN")
        largest = float(np.abs(actions).max(initial=0.0))
        if largest > 1.0:
            these = "it"
            if self._head.choices:
                these = f"its first {self._head.continuous} outputs, and no logit,"
            raise ValueError(
                f"the actor {self.said} must return actions in [-1, 1]; got {largest:g} among "
                f"them: let {these} end in a tanh"
            )

    def __call__(self, *inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Maps `[B, O]` to actions `[B, A]` in [-1, 1], or scores."""
        found = self._called(*inputs, training=training)
        if found.shape.rank != 2 or found.shape[1] != self._head.size:
            size, count = self._head.size, self._head.continuous
            parts = f" ({count} in [-1, 1], {size - count} logits)" if self._head.choices else ""
            raise ValueError(
                f"the actor {self.said} must return actions of shape [B, {size}]{parts}; got "
                f"{found.shape} for B = {inputs[0].shape[0]}"
            )
        return scores(self._head, found, inputs[0])


class CustomCritic(CustomModel):
    """Adapts a user's critics; the arguments are those of `CustomModel`, and sizes.

    Args:
        model: Maps `[B, O - M]` and `[B, A]` to values `[n_critics, B]`, or to `[B]` or `[B, 1]`,
            which is one critic.

    Raises:
        ValueError: See `CustomModel`; also if what it returns has another shape.
    """

    def __init__(self, model: Any, observations: int, actions: int, **more: Any) -> None:
        super().__init__(model, "critic", **more)
        for output in self._examine(observations, actions):
            if not np.isfinite(output.numpy()).all():
                raise ValueError(f"the critic {self.said} must return finite values; got {output}")
        self.n_critics = int(output.shape[0])

    def __call__(self, *inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Maps `[B, O]` and `[B, A]` to values `[n_critics, B]`."""
        found, rows = self._called(*inputs, training=training), inputs[0].shape[0]
        if found.shape.rank == 1 or (found.shape.rank == 2 and found.shape[1] == 1 != rows):
            found = tf.reshape(found, [1, -1])
        if found.shape.rank != 2 or found.shape[1] != rows:
            raise ValueError(
                f"the critic {self.said} must return values of shape [n_critics, B], [B] or "
                f"[B, 1]; got {found.shape} for B = {rows}"
            )
        return found

    def first(self, *inputs: tf.Tensor) -> tf.Tensor:
        """Maps `[B, O]` and `[B, A]` to the values `[B]` of member 0."""
        return self(*inputs)[0]

    encode, first_of = Critic.encode, Critic.first_of


class CustomCritics:
    """Several models of one critic each, side by side.

    Args:
        members: Them.
        name: Name of the ensemble.
    """

    def __init__(self, members: Sequence[CustomCritic], name: str) -> None:
        self._members, self.name, self.n_critics = members, name, len(members)
        self.compiles = all(member.compiles for member in members)
        self.compute_dtype = self.variable_dtype = members[0].variable_dtype
        self.variables = [
            CustomVariable(f"{index}/{variable.path}", variable.value, variable.trainable)
            for index, member in enumerate(members)
            for variable in member.variables
        ]

    def check_mode(self, mode: str) -> None:
        """Compiles a call of the first, as training in `mode` will."""
        self._members[0].check_mode(mode)

    trainable_variables = CustomModel.trainable_variables
    get_weights, set_weights = CustomModel.get_weights, CustomModel.set_weights
    count_params = CustomModel.count_params

    @property
    def losses(self) -> list[tf.Tensor]:
        """Penalties that Keras models declare."""
        return [loss for member in self._members for loss in member.losses]

    def __call__(self, *inputs: tf.Tensor) -> tf.Tensor:
        """Maps `[B, O]` and `[B, A]` to values `[n_critics, B]`."""
        return tf.concat([member(*inputs) for member in self._members], axis=0)

    def training(self, *inputs: tf.Tensor) -> tf.Tensor:
        """The same, of models that are being trained."""
        return tf.concat([member.training(*inputs) for member in self._members], axis=0)

    def first(self, *inputs: tf.Tensor) -> tf.Tensor:
        """Maps `[B, O]` and `[B, A]` to the values `[B]` of member 0."""
        return self._members[0].first(*inputs)

    encode, first_of = Critic.encode, Critic.first_of


def _said_briefly(error: Exception) -> str:
    """Names an error, with what it says but for the code that led there."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error))  # Keras writes in bold
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    if lines and lines[0].startswith("in user code"):  # then the error itself comes last, named
        return lines[-1]
    return f"{type(error).__name__}: {' '.join(lines[:3])}"


def _training_argument(model: Any) -> str:
    """Names the argument that says whether a model is being trained, or "" if there is none."""
    if isinstance(model, keras.layers.Layer):
        return "training"  # Keras hands it on to the layers inside, whether or not `call` takes it
    try:
        names = inspect.signature(model).parameters
    except (TypeError, ValueError):
        return ""
    return next((name for name in ("training", "is_training") if name in names), "")
