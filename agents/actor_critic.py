"""Actor, critics, targets and optimisers: built, saved and restored as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from eagerly.agents import losses
from eagerly.agents.adam import Adam
from eagerly.agents.builder import ModelBuilder
from eagerly.agents.discrete import DiscreteActions
from eagerly.agents.inputs import Batch
from eagerly.agents.persistence import VariableCheckpoint
from eagerly.networks import acting_policy
from eagerly.networks.models import CustomVariable, copy_variables
from eagerly.networks.padding import masked_mean

_MODELS = ("actor", "actor_target", "critic", "critic_target")


class ActorCritic:
    """What a deterministic actor-critic agent learns and keeps.

    Everything exists once the object does: optimiser slots too, so that no variable is created
    while the train body is traced.

    Args:
        builder: Builds the models, twice for the targets; its settings are those of an agent.
        discrete: What makes actions of the actor's scores.

    Attributes:
        actor, actor_target, critic, critic_target: The models; each target begins as a copy.
        actor_optimizer, critic_optimizer: `Adam`.
        updates: int64 variable, gradient steps of the critics so far.
        updates_made: The same as a Python number.
        checkpoint: Everything that is learned and kept, as it is written to files and read back.
        policy: Calls the actor on NumPy observations; told here when its weights have changed.
    """

    def __init__(self, builder: ModelBuilder, discrete: DiscreteActions) -> None:
        config, self._discrete = builder.config, discrete
        self.actor, self.critic = builder.models()
        self.actor_target, self.critic_target = builder.models("_target")
        self._check_targets()
        copy_variables(self.actor, self.actor_target)
        copy_variables(self.critic, self.critic_target)
        self._rates = config.actor_learning_rate, config.critic_learning_rate
        learned = self._learned(config.shared_gradient)
        self._learned_by_actor, self._learned_by_critic = learned
        self.actor_optimizer, self.critic_optimizer = (
            _optimizer(role, rate, config.adam_epsilon, variables)
            for role, rate, variables in zip(("actor", "critic"), self._rates, learned, strict=True)
        )
        self.updates = tf.Variable(0, dtype=tf.int64, trainable=False, name="updates")
        self.updates_made = 0
        self.policy = acting_policy(self.actor, builder.actions.size)
        self.checkpoint = VariableCheckpoint(
            updates=[self.updates],
            **self._once(),
            actor_optimizer=_of_optimizer(self.actor_optimizer, self._learned_by_actor),
            critic_optimizer=_of_optimizer(self.critic_optimizer, self._learned_by_critic),
        )

    def _once(self) -> dict[str, list[Any]]:
        """Lists the variables of each model, but for those that one before it has, too."""
        seen: set[int] = set()
        groups = {}
        for name in _MODELS:
            variables = getattr(self, name).variables
            groups[name] = [v for v in variables if id(v.value) not in seen]
            seen |= {id(variable.value) for variable in groups[name]}
        return groups

    def _learned(self, shared_gradient: str) -> tuple[list[Any], list[Any]]:
        """Lists the variables that the actor's loss moves, and those that the critics' does."""
        of_actor, of_critic = (m.trainable_variables for m in (self.actor, self.critic))
        shared = {id(v.value) for v in of_actor} & {id(v.value) for v in of_critic}
        if shared_gradient != "critic" and not shared:
            raise ValueError(
                f"shared_gradient {shared_gradient} is for what actor and critics share; they have "
                "no variable in common"
            )
        if shared_gradient == "critic":
            of_actor = [v for v in of_actor if id(v.value) not in shared]
        if shared_gradient == "actor":
            of_critic = [v for v in of_critic if id(v.value) not in shared]
        for name, left in (("actor", of_actor), ("critics", of_critic)):
            if not left:
                raise ValueError(
                    f"the loss of the {name} has nothing to move: all its variables are shared, "
                    f"and shared_gradient is {shared_gradient}"
                )
        return list(of_actor), list(of_critic)

    def _check_targets(self) -> None:
        """Refuses targets that are not like their networks, or are the same objects.

        Raises:
            ValueError: Naming the variable.
        """
        learned = {id(v.value) for m in (self.actor, self.critic) for v in m.trainable_variables}
        for model, target in ((self.actor, self.actor_target), (self.critic, self.critic_target)):
            for variable in target.trainable_variables:
                if id(variable.value) in learned:
                    raise ValueError(
                        f"variable {variable.path!r} of {model.name} came back from a second call "
                        "of its factory: make a new one in every call, for the targets. What "
                        "actor and critics share comes from one factory of both, `models`."
                    )
            shapes, copies = (
                [(v.path, tuple(v.shape)) for v in m.variables] for m in (model, target)
            )
            if [shape for _, shape in shapes] != [shape for _, shape in copies]:
                raise ValueError(
                    f"the factory of {model.name} made other variables when it was called again: "
                    f"{shapes}, then {copies}"
                )

    def critic_step(self, batch: Batch, target: tf.Tensor) -> dict[str, tf.Tensor]:
        """Moves every critic towards the target `[B]`, and as its own penalties ask.

        The critics alone get a gradient.
        """
        with tf.name_scope("critic_loss"), tf.GradientTape() as tape:
            values = self.critic(batch.observation, batch.action, training=True)
            loss = losses.critic_loss(values, target, batch.mask)
            for penalty in self.critic.losses:
                loss += penalty
        variables = [variable.value for variable in self._learned_by_critic]
        self.critic_optimizer.apply(tape.gradient(loss, variables), variables)
        return {
            "losses/critic": loss,
            "values/mean": losses.mean(values[0], batch.mask),
            "values/max": _greatest(values[0], batch.mask),
            "values/target_mean": losses.mean(target, batch.mask),
        }

    def actor_step(self, batch: Batch, gumbel: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        """Moves the actor up the first critic's values of its actions.

        The gradient goes through the action alone: what actor and critics share, if it is moved
        here at all, is not moved by what else the critic knows. A discrete choice is drawn, with
        noise `[B, A - C]`; its gradient is straight-through.
        """
        variables = [variable.value for variable in self._learned_by_actor]
        discrete = self._discrete
        with (
            tf.name_scope("actor_loss"),
            tf.GradientTape(watch_accessed_variables=False) as tape,
        ):
            tape.watch(variables)
            scores = self.actor(batch.observation, training=True)
            relaxed, penalty = discrete.relaxed(scores, gumbel), None
            if discrete.any:
                penalty = discrete.logit_penalty * losses.mean(discrete.penalty(scores), batch.mask)
        action = discrete.hard(relaxed)
        with (
            tf.name_scope("actor_loss/"),
            tf.GradientTape(watch_accessed_variables=False) as of_action,
        ):
            of_action.watch(action)
            values = self.critic.first(batch.observation, action)
            of_action.watch(values)
            loss = losses.actor_loss(values, batch.mask)
        if penalty is None:
            upstream = of_action.gradient(loss, action)
            gradients = tape.gradient(relaxed, variables, output_gradients=upstream)
        else:
            upstream = self._upstream(batch, action, *of_action.gradient(loss, (action, values)))
            gradients = tape.gradient(
                [relaxed, penalty], variables, output_gradients=[upstream, tf.ones_like(penalty)]
            )
            loss += penalty
        self.actor_optimizer.apply(gradients, variables)
        saturated = tf.cast(discrete.saturated(relaxed), action.dtype)
        return {"losses/actor": loss, "actions/saturation": _over_rows(saturated, batch.mask)}

    def _upstream(
        self, batch: Batch, action: tf.Tensor, slopes: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Returns the gradient `[B, A]` of the actor's loss with respect to its actions.

        A critic is only taught values of whole choices, so its slope between them means nothing:
        in its place the values of all alternatives of a choice are compared.

        Args:
            batch: The batch.
            action: The actions `[B, A]`.
            slopes: `[B, A]`, gradient with respect to them.
            weights: `[B]`, gradient with respect to their values.
        """
        with tf.name_scope("alternatives"):
            alternatives = self._discrete.alternatives(action)
            count = alternatives.shape[0] // action.shape[0]
            values = self.critic.first(batch.observation, alternatives, count)
            values = tf.reshape(values, [count, -1])
            values -= tf.reduce_mean(values, axis=0)  # what they have in common has no gradient
            return tf.concat([slopes[:, :-count], tf.transpose(values * weights)], axis=1)

    def update_targets(self, tau: float) -> None:
        """Moves every target network by `tau` towards its network; what they share stays.

        What is not learned, such as running statistics, is copied.
        """
        followed: set[int] = set()
        with tf.name_scope("target_update"):
            for target, network in (
                (self.critic_target, self.critic),
                (self.actor_target, self.actor),
            ):
                pairs = [
                    (own, other)
                    for own, other in zip(target.variables, network.variables, strict=True)
                    if own.value is not other.value and id(own.value) not in followed
                ]
                followed |= {id(own.value) for own, _ in pairs}
                moved = [(own.value, other.value) for own, other in pairs if other.trainable]
                losses.polyak_update([own for own, _ in moved], [other for _, other in moved], tau)
                for own, other in pairs:
                    if not other.trainable:
                        own.assign(other.value)

    def refresh(self) -> None:
        """Takes note that `checkpoint` was read; the learning rates stay as given."""
        self.updates_made = int(self.updates.numpy())
        self.policy.refresh()
        self.actor_optimizer.learning_rate, self.critic_optimizer.learning_rate = self._rates

    def get_weights(self) -> dict[str, np.ndarray]:
        """Copies the weights of actor, critics and targets, by `part/path`.

        The names are the same in every process; what parts share stands once.
        """
        return {name: variable.numpy() for name, variable in self._weights().items()}

    def set_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        """Takes over what `get_weights` returned; optimisers stay as they are.

        Raises:
            ValueError: If a name is missing or unknown, or a shape or dtype is another.
            FloatingPointError: If a value is not finite. Nothing is taken over then.
        """
        check_weights(weights, self.get_weights())
        for name, variable in self._weights().items():
            variable.assign(weights[name])
        self.policy.refresh()

    def _weights(self) -> dict[str, tf.Variable]:
        return {
            f"{part}/{path}": variable
            for part in _MODELS
            for path, variable in self.variables()[part].items()
        }

    def variables(self) -> dict[str, dict[str, tf.Variable]]:
        """Returns all that is learned and kept, by part and path; what parts share stands once."""
        return self.checkpoint.groups

    def policy_weights(self) -> dict[str, np.ndarray]:
        """Copies the actor's weights, by their path."""
        return {variable.path: variable.numpy() for variable in self.actor.variables}


def check_weights(given: Any, own: Mapping[str, np.ndarray]) -> None:
    """Refuses weights that are not like an agent's own, by name, shape, dtype and being finite.

    Raises:
        ValueError: If a name is missing or unknown, or a shape or dtype is another.
        FloatingPointError: If a value is not finite.
    """
    if not isinstance(given, Mapping):
        raise ValueError(f"weights must be arrays by name, as get_weights gives; got {type(given)}")
    missing, unknown = own.keys() - given.keys(), given.keys() - own.keys()
    if missing or unknown:
        raise ValueError(
            "weights must be those of this agent; missing: "
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


def _optimizer(role: str, rate: float, epsilon: float, learned: Sequence[Any]) -> Adam:
    optimizer = Adam(rate, epsilon=epsilon, name=f"{role}_optimizer")
    # Keras names slots after its own variables, and takes TensorFlow's without their names.
    optimizer.build([v.value if isinstance(v, CustomVariable) else v for v in learned])
    return optimizer


def _of_optimizer(optimizer: Adam, learned: Sequence[Any]) -> list[Any]:
    """Lists what an optimiser keeps, with names that are the same in every process."""
    if not any(isinstance(variable, CustomVariable) for variable in learned):
        return list(optimizer.variables)
    kept = [
        CustomVariable("iterations", optimizer.iterations.value, False),
        CustomVariable("learning_rate", optimizer._learning_rate.value, False),
    ]
    for name, slots in (("momentum", optimizer._momentums), ("velocity", optimizer._velocities)):
        for variable, slot in zip(learned, slots, strict=True):
            kept.append(CustomVariable(f"{variable.path}/{name}", slot.value, False))
    return kept


def _greatest(values: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
    """Returns the greatest of values `[B]` that count."""
    if mask is None:
        return tf.reduce_max(values)
    return tf.reduce_max(tf.where(mask, values, values.dtype.min))


def _over_rows(values: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
    """Averages values `[B, A]` over rows that count, and over dimensions."""
    if mask is None:
        return tf.reduce_mean(values)
    return masked_mean(values, mask[:, tf.newaxis])
