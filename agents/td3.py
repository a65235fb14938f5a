"""Twin Delayed Deep Deterministic policy gradient (TD3).

Fujimoto, van Hoof and Meger 2018, "Addressing Function Approximation Error in Actor-Critic
Methods", Algorithm 1. Defaults are those of the authors' code today (256-256, learning rates
3e-4, batch 256), which differ from the paper's appendix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import gymnasium
import keras
import numpy as np
import tensorflow as tf

from eagerly.agents import losses
from eagerly.agents.actor_critic import ActorCritic
from eagerly.agents.execution import MODES, compiled, named_metrics
from eagerly.agents.exploration import GaussianNoise
from eagerly.agents.noise import standard_normal
from eagerly.agents.settings import check_settings, setting
from eagerly.buffers import ReplayBuffer, RowLayout, Stream, Transition, seed_sequence, seed_word
from eagerly.networks import ActionBounds, Actor, Critic, observation_size
from eagerly.networks.activations import ACTIVATIONS
from eagerly.networks.initializers import INITIALIZERS

ACTOR_METRICS = ("losses/actor", "actions/saturation")
METRICS = ("losses/critic", "values/mean", "values/max", "values/target_mean", *ACTOR_METRICS)


@dataclass(frozen=True, kw_only=True)
class TD3Config:
    """Settings of TD3; "authors" below is their public code, "paper" Fujimoto et al. 2018."""

    hidden_sizes: tuple[int, ...] = setting((256, 256), "Hidden units (authors)", at_least=1)
    activation: str = setting("relu", "Hidden activation (paper)", choices=ACTIVATIONS)
    layer_norm: bool = setting(False, "Normalise hidden layers before their activation")
    initializer: str = setting("glorot_uniform", "Initial weights (Keras)", choices=INITIALIZERS)
    n_critics: int = setting(2, "Critics whose smallest value is the target (paper)", at_least=1)
    actor_learning_rate: float = setting(3e-4, "Adam's step size, actor (authors)", above=0)
    critic_learning_rate: float = setting(3e-4, "Adam's step size, critics (authors)", above=0)
    adam_epsilon: float = setting(
        1e-8, "Adam's epsilon, where Keras adds it (docs/td3.md)", above=0
    )
    batch_size: int = setting(256, "Per update (authors)", unit="transitions", at_least=1)
    tau: float = setting(0.005, "Step of targets to networks (paper)", above=0, at_most=1)
    policy_delay: int = setting(
        2, "Actor and targets move every so many (paper)", unit="updates", at_least=1
    )
    target_noise: float = setting(
        0.2, "Deviation of target smoothing noise (paper)", unit="of [-1, 1]", at_least=0
    )
    target_noise_clip: float = setting(
        0.5, "Largest target smoothing noise (paper)", unit="of [-1, 1]", at_least=0
    )
    exploration_noise: float = setting(
        0.1, "Deviation of exploration noise (paper)", unit="of [-1, 1]", at_least=0
    )
    mode: str = setting("xla", "How the train body runs; eager is for debugging", choices=MODES)
    precision: str = setting("float32", "Of the networks", choices=("float32", "float64"))

    def __post_init__(self) -> None:
        check_settings(self)

    def networks(self) -> dict[str, Any]:
        """What actor and critics have in common."""
        names = ("hidden_sizes", "activation", "layer_norm", "initializer")
        return {name: getattr(self, name) for name in names} | {"dtype": self.precision}


class TD3:
    """A TD3 agent: networks, optimisers and the compiled train body.

    Args:
        observation_space: A flat `Box` of O dimensions.
        action_space: A bounded `Box` of A dimensions. Inside, actions are in [-1, 1].
        config: The settings.
        seed: Seed of the initial weights and of all noise, at least 0.

    Attributes:
        networks: The `ActorCritic`: actor, critics, targets, optimisers; saved as one.
        exploration: The noise of `act`.

    Raises:
        ValueError: If a space is not supported.
    """

    Config = TD3Config

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
        self._layout, self._seed = RowLayout(*sizes), seed
        self._dtype = tf.dtypes.as_dtype(config.precision)
        self.networks = ActorCritic(
            lambda name: self.build_actor(config, *sizes, seed=seed, name=name),
            lambda name: Critic(
                *sizes,
                n_critics=config.n_critics,
                seed=seed_word(seed, Stream.CRITIC),
                name=name,
                **config.networks(),
            ),
            actor_learning_rate=config.actor_learning_rate,
            critic_learning_rate=config.critic_learning_rate,
            epsilon=config.adam_epsilon,
        )
        self.exploration = GaussianNoise(
            config.exploration_noise, seed_sequence(seed, Stream.EXPLORATION)
        )
        self._compiled_train_body = compiled(self._train_body, config.mode)

    @staticmethod
    def build_actor(
        config: TD3Config, observations: int, actions: int, *, seed: int, name: str = "actor"
    ) -> keras.Model:
        """Builds an actor alone, for O observations and A actions."""
        return Actor(
            observations,
            actions,
            seed=seed_word(seed, Stream.ACTOR),
            name=name,
            **config.networks(),
        )

    @property
    def updates(self) -> int:
        """Gradient steps of the critics so far."""
        return int(self.networks.updates.numpy())

    def act(self, observations: np.ndarray, explore: bool) -> np.ndarray:
        """Chooses actions for a batch of environments.

        Args:
            observations: `[N, O]`.
            explore: Whether exploration noise is added.

        Returns:
            `[N, A]`, float32, in [-1, 1]; without exploration a function of `observations` alone.

        Raises:
            ValueError: If the observations have another shape.
            FloatingPointError: If an action is NaN, because a weight or an observation is.
        """
        if observations.shape[1:] != (self._layout.observation_size,):
            raise ValueError(
                f"observations must have shape [N, {self._layout.observation_size}], got "
                f"{observations.shape}: pass one observation as observation[np.newaxis]"
            )
        actions = self.networks.policy(observations).astype(np.float32, copy=False)
        if not math.isfinite(actions.sum()):
            raise FloatingPointError(f"action became {actions.tolist()} for {observations}")
        return self.exploration(actions) if explore else actions

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
        first = self.updates + 1
        rows = buffer.sample_rows(updates, self.config.batch_size)
        history = self._compiled_train_body(tf.constant(rows, self._dtype))
        self.networks.policy.refresh()
        metrics = named_metrics(METRICS, history.numpy(), first)
        moved = np.arange(first, first + updates) % self.config.policy_delay == 0
        return metrics | {name: metrics[name][moved] for name in ACTOR_METRICS}

    def _train_body(self, rows: tf.Tensor) -> tf.Tensor:
        """Makes K updates on rows `[K, B, width]`; returns metrics `[K, len(METRICS)]`."""
        shape = (rows.shape[1], self._layout.action_size)
        history = tf.TensorArray(self._dtype, size=rows.shape[0])
        for k in tf.range(rows.shape[0]):
            self.networks.updates.assign_add(1)
            update = self.networks.updates.value()
            noise = self.config.target_noise * standard_normal(
                shape, self._seed, update, self._dtype
            )
            metrics = self._update(self._layout.unpack(rows[k]), noise, update)
            history = history.write(k, tf.stack([metrics[name] for name in METRICS]))
        return history.stack()

    def _update(
        self, batch: Transition, noise: tf.Tensor, update: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Makes one update with smoothing noise `[B, A]`: the inner part of Algorithm 1."""
        metrics = self._update_critic(batch, noise)
        if update % self.config.policy_delay == 0:  # "if t mod d"
            metrics |= self._update_actor_and_targets(batch)
        else:
            metrics |= {name: tf.zeros_like(metrics[METRICS[0]]) for name in ACTOR_METRICS}
        return metrics

    def _update_critic(self, batch: Transition, noise: tf.Tensor) -> dict[str, tf.Tensor]:
        nets = self.networks
        with tf.name_scope("target"):
            # The target policy's next action, smoothed by clipped noise (Eq. 15).
            next_action = losses.smoothed_action(
                nets.actor_target(batch.next_observation), noise, self.config.target_noise_clip
            )
            # y = r + discount * the smaller of the target critics, one y for all critics (Eq. 10).
            next_values = nets.critic_target(batch.next_observation, next_action)
            target = losses.clipped_target(batch.reward, batch.discount, next_values)
        # Each critic regresses on y.
        variables = nets.critic.trainable_variables
        with tf.name_scope("critic_loss"), tf.GradientTape() as tape:
            values = nets.critic(batch.observation, batch.action)
            loss = losses.critic_loss(values, target)
        nets.critic_optimizer.apply(tape.gradient(loss, variables), variables)
        return {
            "losses/critic": loss,
            "values/mean": tf.reduce_mean(values[0]),
            "values/max": tf.reduce_max(values[0]),
            "values/target_mean": tf.reduce_mean(target),
        }

    def _update_actor_and_targets(self, batch: Transition) -> dict[str, tf.Tensor]:
        nets = self.networks
        # The actor climbs the first critic by the deterministic policy gradient; the critic's own
        # weights get no gradient.
        variables = nets.actor.trainable_variables
        with (
            tf.name_scope("actor_loss"),
            tf.GradientTape(watch_accessed_variables=False) as tape,
        ):
            tape.watch([variable.value for variable in variables])
            action = nets.actor(batch.observation)
            loss = losses.actor_loss(nets.critic.first(batch.observation, action))
        nets.actor_optimizer.apply(tape.gradient(loss, variables), variables)
        # All targets follow.
        with tf.name_scope("target_update"):
            for target, network in (
                (nets.critic_target, nets.critic),
                (nets.actor_target, nets.actor),
            ):
                losses.polyak_update(target.variables, network.variables, self.config.tau)
        saturated = tf.cast(tf.abs(action) > 0.99, action.dtype)
        return {"losses/actor": loss, "actions/saturation": tf.reduce_mean(saturated)}

    def graph(self) -> tf.Graph | None:
        """Traces one update in which everything moves, for looking at; names as in the code.

        In eager mode, where a breakpoint must meet real tensors only, nothing is traced.
        """
        if self.config.mode == "eager":
            return None

        def update(rows: tf.Tensor, noise: tf.Tensor) -> dict[str, tf.Tensor]:
            batch = self._layout.unpack(rows)
            return self._update_critic(batch, noise) | self._update_actor_and_targets(batch)

        sizes = (self._layout.width, self._layout.action_size)
        specs = [tf.TensorSpec((self.config.batch_size, size), self._dtype) for size in sizes]
        return tf.function(update).get_concrete_function(*specs).graph
