"""Twin Delayed Deep Deterministic policy gradient (TD3).

Fujimoto, van Hoof and Meger 2018, "Addressing Function Approximation Error in Actor-Critic
Methods", Algorithm 1. Defaults are those of the authors' code today (256-256, learning rates
3e-4, batch 256), which differ from the paper's appendix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import keras
import numpy as np
import tensorflow as tf

from eagerly.agents import losses
from eagerly.agents.execution import MODES, compiled
from eagerly.agents.noise import standard_normal
from eagerly.agents.persistence import VariableCheckpoint
from eagerly.agents.settings import check_settings, setting
from eagerly.buffers import (
    ReplayBuffer,
    RowLayout,
    Stream,
    Transition,
    seed_sequence,
    seed_word,
)
from eagerly.networks import ActingPolicy, ActionBounds, Actor, Critic, observation_size
from eagerly.networks.activations import ACTIVATIONS
from eagerly.networks.initializers import INITIALIZERS


@dataclass(frozen=True, kw_only=True)
class TD3Config:
    """Settings of TD3; "authors" below is their public code, "paper" Fujimoto et al. 2018."""

    hidden_sizes: tuple[int, ...] = setting(
        (256, 256), "Units of the hidden layers of actor and critics (authors)", at_least=1
    )
    activation: str = setting("relu", "Hidden activation (paper)", choices=ACTIVATIONS)
    layer_norm: bool = setting(False, "Normalise hidden layers before their activation")
    initializer: str = setting(
        "glorot_uniform", "Initial weights: Keras' default, or torch_linear", choices=INITIALIZERS
    )
    n_critics: int = setting(2, "Critics whose smallest value is the target (paper)", at_least=1)
    actor_learning_rate: float = setting(3e-4, "Adam's step size, actor (authors)", above=0)
    critic_learning_rate: float = setting(3e-4, "Adam's step size, critics (authors)", above=0)
    adam_epsilon: float = setting(
        1e-8,
        "Adam's epsilon, added to sqrt(v) before its bias is corrected (as Keras does)",
        above=0,
    )
    batch_size: int = setting(256, "Transitions per update (authors)", at_least=1)
    tau: float = setting(
        0.005, "Step of the targets towards the networks (paper)", above=0, at_most=1
    )
    policy_delay: int = setting(
        2,
        "The actor and all targets move every so many updates (paper)",
        unit="updates",
        at_least=1,
    )
    target_noise: float = setting(
        0.2,
        "Standard deviation of the target smoothing noise (paper)",
        unit="of [-1, 1]",
        at_least=0,
    )
    target_noise_clip: float = setting(
        0.5, "Largest size of the target smoothing noise (paper)", unit="of [-1, 1]", at_least=0
    )
    exploration_noise: float = setting(
        0.1, "Standard deviation of the exploration noise (paper)", unit="of [-1, 1]", at_least=0
    )
    mode: str = setting("xla", "How the train body runs; eager is for debugging", choices=MODES)
    precision: str = setting(
        "float32", "Arithmetic of the networks", choices=("float32", "float64")
    )

    def __post_init__(self) -> None:
        check_settings(self)


def build_actor(
    config: TD3Config, observation_size: int, action_size: int, *, seed: int, name: str = "actor"
) -> Actor:
    """Builds the actor, whose initial weights follow from the seed of the run."""
    return Actor(
        observation_size,
        action_size,
        hidden_sizes=config.hidden_sizes,
        activation=config.activation,
        layer_norm=config.layer_norm,
        initializer=config.initializer,
        seed=seed_word(seed, Stream.ACTOR),
        dtype=config.precision,
        name=name,
    )


def build_critic(
    config: TD3Config, observation_size: int, action_size: int, *, seed: int, name: str = "critic"
) -> Critic:
    """Builds the critics, whose initial weights follow from the seed of the run."""
    return Critic(
        observation_size,
        action_size,
        n_critics=config.n_critics,
        hidden_sizes=config.hidden_sizes,
        activation=config.activation,
        layer_norm=config.layer_norm,
        initializer=config.initializer,
        seed=seed_word(seed, Stream.CRITIC),
        dtype=config.precision,
        name=name,
    )


class TD3:
    """A TD3 agent: networks, optimisers and the compiled train body.

    Args:
        observation_space: A flat `Box` of O dimensions.
        action_space: A bounded `Box` of A dimensions. Inside, actions are in [-1, 1].
        config: The settings.
        seed: Seed of the initial weights and of all noise, at least 0.

    Attributes:
        actor, actor_target: `Actor`.
        critic, critic_target: `Critic`.
        actor_optimizer, critic_optimizer: `keras.optimizers.Adam`.

    Raises:
        ValueError: If a space is not supported.
    """

    Config = TD3Config
    build_actor = staticmethod(build_actor)

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        config: TD3Config | None = None,
        *,
        seed: int = 0,
    ) -> None:
        self.config = config = config or TD3Config()
        sizes = observation_size(observation_space), ActionBounds(action_space).size
        self._layout = RowLayout(*sizes)
        self._seed = seed
        self._dtype = tf.dtypes.as_dtype(config.precision)
        # Built from equal seeds, each target starts as a copy of its network (line 2).
        self.actor = self.build_actor(config, *sizes, seed=seed)
        self.actor_target = self.build_actor(config, *sizes, seed=seed, name="actor_target")
        self.critic = build_critic(config, *sizes, seed=seed)
        self.critic_target = build_critic(config, *sizes, seed=seed, name="critic_target")
        self.actor_optimizer = keras.optimizers.Adam(
            config.actor_learning_rate, epsilon=config.adam_epsilon, name="actor_optimizer"
        )
        self.critic_optimizer = keras.optimizers.Adam(
            config.critic_learning_rate, epsilon=config.adam_epsilon, name="critic_optimizer"
        )
        self.actor_optimizer.build(self.actor.trainable_variables)
        self.critic_optimizer.build(self.critic.trainable_variables)
        self._updates = tf.Variable(0, dtype=tf.int64, trainable=False, name="updates")
        self._checkpoint = VariableCheckpoint(
            updates=[self._updates],
            actor=self.actor.variables,
            actor_target=self.actor_target.variables,
            critic=self.critic.variables,
            critic_target=self.critic_target.variables,
            actor_optimizer=self.actor_optimizer.variables,
            critic_optimizer=self.critic_optimizer.variables,
        )
        self._policy = ActingPolicy(self.actor)
        self._exploration = np.random.Generator(
            np.random.PCG64(seed_sequence(seed, Stream.EXPLORATION))
        )
        self._compiled_train_body = compiled(self._train_body, config.mode)

    @property
    def updates(self) -> int:
        """Gradient steps of the critics so far."""
        return int(self._updates.numpy())

    def act(self, observations: np.ndarray, explore: bool) -> np.ndarray:
        """Chooses actions for a batch of environments.

        Args:
            observations: `[N, O]`.
            explore: Whether Gaussian exploration noise is added.

        Returns:
            `[N, A]`, float32, in [-1, 1]; without exploration a function of `observations` alone.

        Raises:
            ValueError: If the observations have another shape.
        """
        if observations.shape[1:] != (self._layout.observation_size,):
            raise ValueError(
                f"observations must have shape [N, {self._layout.observation_size}], got "
                f"{observations.shape}: pass one observation as observation[np.newaxis]"
            )
        actions = self._policy(observations).astype(np.float32, copy=False)
        if not explore:
            return actions
        noise = self._exploration.standard_normal(actions.shape, np.float32)
        noise *= self.config.exploration_noise
        return np.clip(actions + noise, -1.0, 1.0)

    def train(self, buffer: ReplayBuffer, updates: int) -> dict[str, np.ndarray]:
        """Makes `updates` gradient steps in one call of the compiled train body.

        Each new number of updates is traced and compiled once more, which takes seconds.

        Returns:
            One float per update for each metric; those of the actor only for the updates in
            which it moved.

        Raises:
            ValueError: If the buffer holds transitions of other sizes, or none.
            FloatingPointError: If a metric is NaN or infinite, naming it and the update.
        """
        if buffer.layout != self._layout:
            raise ValueError(f"the buffer must hold {self._layout}; got {buffer.layout}")
        before = self.updates
        rows = buffer.sample_rows(updates, self.config.batch_size)
        history = self._compiled_train_body(tf.constant(rows)).numpy()  # [K, metrics]
        self._policy.refresh()
        numbers = np.arange(before + 1, before + updates + 1)
        moved = numbers % self.config.policy_delay == 0
        metrics = dict(zip(METRICS, history.T, strict=True))
        for name, values in metrics.items():
            bad = numbers[~np.isfinite(values)]
            if bad.size:
                raise FloatingPointError(
                    f"{name} became {values[bad[0] - before - 1]} in update {bad[0]}: lower the "
                    "learning rates, or scale the rewards"
                )
        return {n: v[moved] if n in ACTOR_METRICS else v for n, v in metrics.items()}

    def save(self, prefix: str) -> None:
        """Writes networks, targets, optimisers and the update count to files `prefix.*`.

        Raises:
            FloatingPointError: If a variable holds NaN or infinite values, naming it; nothing is
                written then.
        """
        self._checkpoint.write(prefix)

    def restore(self, prefix: str) -> None:
        """Reads back what `save` wrote; settings, the learning rates among them, stay as given.

        Raises:
            ValueError: If the file holds other networks than this agent has.
        """
        self._checkpoint.read(prefix)
        self.actor_optimizer.learning_rate = self.config.actor_learning_rate
        self.critic_optimizer.learning_rate = self.config.critic_learning_rate
        self._policy.refresh()

    def policy_weights(self) -> dict[str, np.ndarray]:
        """Copies the actor's weights, by their path."""
        return {variable.path: variable.numpy() for variable in self.actor.variables}

    def graph(self) -> tf.Graph:
        """Traces one update in which everything moves, for looking at; names as in the code."""
        rows = tf.TensorSpec((self.config.batch_size, self._layout.width), self._dtype)
        noise = tf.TensorSpec((self.config.batch_size, self._layout.action_size), self._dtype)

        def update(rows: tf.Tensor, noise: tf.Tensor) -> dict[str, tf.Tensor]:
            batch = self._layout.unpack(rows)
            return self._update_critic(batch, noise) | self._update_actor_and_targets(batch)

        return tf.function(update).get_concrete_function(rows, noise).graph

    @property
    def random_state(self) -> dict[str, Any]:
        """The state of the exploration noise, plain numbers that JSON can hold."""
        return dict(self._exploration.bit_generator.state)

    @random_state.setter
    def random_state(self, state: dict[str, Any]) -> None:
        self._exploration.bit_generator.state = state

    def _train_body(self, rows: tf.Tensor) -> tf.Tensor:
        """Makes K updates on rows `[K, B, width]`; returns metrics `[K, len(METRICS)]`."""
        shape = (rows.shape[1], self._layout.action_size)
        history = tf.TensorArray(self._dtype, size=rows.shape[0])
        for k in tf.range(rows.shape[0]):
            self._updates.assign_add(1)
            noise = standard_normal(shape, self._seed, self._updates.value(), self._dtype)
            batch = self._layout.unpack(tf.cast(rows[k], self._dtype))
            metrics = self._update(batch, self.config.target_noise * noise)
            history = history.write(k, tf.stack([metrics[name] for name in METRICS]))
        return history.stack()

    def _update(self, batch: Transition, noise: tf.Tensor) -> dict[str, tf.Tensor]:
        """Makes one update with smoothing noise `[B, A]`: Algorithm 1, lines 9 to 15."""
        metrics = self._update_critic(batch, noise)
        # Line 12: if t mod d.
        if self._updates % self.config.policy_delay == 0:
            metrics |= self._update_actor_and_targets(batch)
        else:
            metrics |= {name: tf.zeros((), self._dtype) for name in ACTOR_METRICS}
        return metrics

    def _update_critic(self, batch: Transition, noise: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.name_scope("target"):
            # Line 9: the target policy's action, smoothed.
            next_action = losses.smoothed_action(
                self.actor_target(batch.next_observation), noise, self.config.target_noise_clip
            )
            # Line 10: y = r + γ min_i Q'_i, one target for all critics.
            next_values = self.critic_target(batch.next_observation, next_action)
            target = losses.clipped_target(batch.reward, batch.discount, next_values)
        # Line 11: each critic regresses on y.
        variables = self.critic.trainable_variables
        with tf.name_scope("critic_loss"), tf.GradientTape() as tape:
            values = self.critic(batch.observation, batch.action)
            loss = losses.critic_loss(values, target)
        gradients = tape.gradient(loss, variables)
        self.critic_optimizer.apply(gradients, variables)
        return {
            "losses/critic": loss,
            "values/mean": tf.reduce_mean(values[0]),
            "values/max": tf.reduce_max(values[0]),
            "values/target_mean": tf.reduce_mean(target),
        }

    def _update_actor_and_targets(self, batch: Transition) -> dict[str, tf.Tensor]:
        # Line 13: the actor climbs the first critic, whose own weights get no gradient.
        variables = self.actor.trainable_variables
        with (
            tf.name_scope("actor_loss"),
            tf.GradientTape(watch_accessed_variables=False) as tape,
        ):
            tape.watch([variable.value for variable in variables])
            action = self.actor(batch.observation)
            loss = losses.actor_loss(self.critic.first(batch.observation, action))
        gradients = tape.gradient(loss, variables)
        self.actor_optimizer.apply(gradients, variables)
        # Lines 14 and 15: all targets follow.
        with tf.name_scope("target_update"):
            losses.polyak_update(
                self.critic_target.variables, self.critic.variables, self.config.tau
            )
            losses.polyak_update(self.actor_target.variables, self.actor.variables, self.config.tau)
        saturated = tf.cast(tf.abs(action) > 0.99, self._dtype)
        return {"losses/actor": loss, "actions/saturation": tf.reduce_mean(saturated)}


ACTOR_METRICS = ("losses/actor", "actions/saturation")
METRICS = (
    "losses/critic",
    "values/mean",
    "values/max",
    "values/target_mean",
    *ACTOR_METRICS,
)
