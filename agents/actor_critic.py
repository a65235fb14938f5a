"""Actor, critics, targets and optimisers: built, saved and restored as one."""

from __future__ import annotations

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from eagerly.agents import losses
from eagerly.agents.adam import Adam
from eagerly.agents.batches import Batch
from eagerly.agents.persistence import VariableCheckpoint
from eagerly.networks import acting_policy
from eagerly.networks.padding import masked_mean


class ActorCritic:
    """What a deterministic actor-critic agent learns and keeps.

    Everything exists once the object does: optimiser slots too, so that no variable is created
    while the train body is traced.

    Args:
        build_actor: Makes an actor with the given name; twice, for the target.
        build_critic: The same for the critics.
        action_size: A.
        actor_learning_rate: Adam's step size for the actor.
        critic_learning_rate: Adam's step size for the critics.
        epsilon: Adam's epsilon, in the place where Keras adds it.

    Attributes:
        actor, actor_target, critic, critic_target: Keras models; each target begins as a copy.
        actor_optimizer, critic_optimizer: `Adam`.
        updates: int64 variable, gradient steps of the critics so far.
        updates_made: The same as a Python number.
        policy: Calls the actor on NumPy observations; told here when its weights have changed.
    """

    def __init__(
        self,
        build_actor: Callable[[str], keras.Model],
        build_critic: Callable[[str], keras.Model],
        action_size: int,
        *,
        actor_learning_rate: float,
        critic_learning_rate: float,
        epsilon: float,
    ) -> None:
        self.actor, self.actor_target = build_actor("actor"), build_actor("actor_target")
        self.critic, self.critic_target = build_critic("critic"), build_critic("critic_target")
        self.actor_target.set_weights(self.actor.get_weights())
        self.critic_target.set_weights(self.critic.get_weights())
        self._rates = actor_learning_rate, critic_learning_rate
        self.actor_optimizer = Adam(actor_learning_rate, epsilon=epsilon, name="actor_optimizer")
        self.critic_optimizer = Adam(critic_learning_rate, epsilon=epsilon, name="critic_optimizer")
        self.actor_optimizer.build(self.actor.trainable_variables)
        self.critic_optimizer.build(self.critic.trainable_variables)
        self.updates = tf.Variable(0, dtype=tf.int64, trainable=False, name="updates")
        self.updates_made = 0
        self.policy = acting_policy(self.actor, action_size)
        self._checkpoint = VariableCheckpoint(
            updates=[self.updates],
            actor=self.actor.variables,
            actor_target=self._apart_from_actor(self.actor_target),
            critic=self._apart_from_actor(self.critic),
            critic_target=self._apart_from_actor(self.critic_target),
            actor_optimizer=self.actor_optimizer.variables,
            critic_optimizer=self.critic_optimizer.variables,
        )

    def _apart_from_actor(self, model: keras.Model) -> list[keras.Variable]:
        """Lists the variables of a model that the actor does not share: each is saved once."""
        shared = {id(variable) for variable in self.actor.variables}
        return [variable for variable in model.variables if id(variable) not in shared]

    def regress(self, batch: Batch, target: tf.Tensor) -> dict[str, tf.Tensor]:
        """Moves every critic towards the target `[B]`, and as its own penalties ask.

        The critics alone get a gradient.
        """
        with tf.name_scope("critic_loss"), tf.GradientTape() as tape:
            values = self.critic(batch.observation, batch.action)
            loss = losses.critic_loss(values, target, batch.mask)
            for penalty in self.critic.losses:
                loss += penalty
        variables = self.critic.trainable_variables
        self.critic_optimizer.apply(tape.gradient(loss, variables), variables)
        return {
            "losses/critic": loss,
            "values/mean": losses.mean(values[0], batch.mask),
            "values/max": _greatest(values[0], batch.mask),
            "values/target_mean": losses.mean(target, batch.mask),
        }

    def climb(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Moves the actor up the first critic's values of its actions.

        The gradient goes through the action; the critic's own weights get none.
        """
        variables = self.actor.trainable_variables
        with (
            tf.name_scope("actor_loss"),
            tf.GradientTape(watch_accessed_variables=False) as tape,
        ):
            tape.watch([variable.value for variable in variables])
            action = self.actor(batch.observation)
            values = self.critic.first(batch.observation, action)
            loss = losses.actor_loss(values, batch.mask)
        self.actor_optimizer.apply(tape.gradient(loss, variables), variables)
        saturated = tf.cast(tf.abs(action) > 0.99, action.dtype)
        return {"losses/actor": loss, "actions/saturation": _over_rows(saturated, batch.mask)}

    def follow(self, tau: float) -> None:
        """Moves every target network by `tau` towards its network; what they share stays."""
        with tf.name_scope("target_update"):
            for target, network in (
                (self.critic_target, self.critic),
                (self.actor_target, self.actor),
            ):
                pairs = zip(target.variables, network.variables, strict=True)
                apart = [(own, other) for own, other in pairs if own is not other]
                losses.polyak_update([own for own, _ in apart], [other for _, other in apart], tau)

    def save(self, prefix: str) -> None:
        """Writes everything to files `prefix.*`.

        Raises:
            FloatingPointError: If a variable holds NaN or infinite values, naming it; nothing is
                written then.
        """
        self._checkpoint.write(prefix)

    def restore(self, prefix: str) -> None:
        """Reads back what `save` wrote; the learning rates stay as given to the constructor.

        Raises:
            ValueError: If the files hold other networks than these.
        """
        self._checkpoint.read(prefix)
        self.updates_made = int(self.updates.numpy())
        self.policy.refresh()
        self.actor_optimizer.learning_rate, self.critic_optimizer.learning_rate = self._rates

    def policy_weights(self) -> dict[str, np.ndarray]:
        """Copies the actor's weights, by their path."""
        return {variable.path: variable.numpy() for variable in self.actor.variables}


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
