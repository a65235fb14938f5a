"""TD7: TD3 with state-action embeddings, prioritized replay and policy checkpoints.

Fujimoto, Chang, Smith, Gu, Precup and Meger 2023, "For SALE: State-Action Representation Learning
for Deep Reinforcement Learning", section 5 and Algorithm 1. Defaults follow the authors' code.

The encoder consists of f, which maps states to embeddings zs, and g, which maps zs and actions to
embeddings zsa. It exists in three generations: the trained encoder, the fixed encoder used by actor
and critics, and the previous fixed encoder used by their targets. Policy checkpoints are
implemented in `eagerly.training.policy_checkpoints`.
"""

from __future__ import annotations

import itertools
from typing import Any

import tensorflow as tf

from eagerly.agents import losses
from eagerly.agents.agent import Agent
from eagerly.agents.builder import ModelBuilder
from eagerly.agents.inputs import Batch
from eagerly.agents.metrics import actor_metrics, critic_metrics
from eagerly.agents.modules import Module, Modules
from eagerly.agents.results import Tensors
from eagerly.agents.schedule import Phase
from eagerly.agents.td7_config import TD7Config
from eagerly.agents.update_random import UpdateRandom
from eagerly.networks.sale import (
    EmbeddedActor,
    EmbeddedCritic,
    EmbeddedPolicy,
    StateActionEncoder,
    StateEncoder,
    ValueRange,
)
from eagerly.policies.heads import ActionHead
from eagerly.seeding import Stream


class TD7Builder(ModelBuilder):
    """Builds encoders, actors and critics. Repeated calls create the same initial weights."""

    config: TD7Config

    def modules(self) -> Modules:
        """Builds the modules, in the order in which their networks are copied to the targets.

        Copies are made every `copy_every` updates. The order matters: the fixed encoder is copied
        to its target before the trained encoder overwrites it.
        """
        config, every = self.config, self.config.copy_every
        fixed, actor = self.encoder("fixed_encoder"), self.embedded_actor()

        def optimizer(name: str) -> Any:
            rate = getattr(config, f"{name}_learning_rate")
            return self.rates.optimizer(rate, f"{name}_optimizer")

        def module(name: str, network: Any, target: Any) -> Module:
            return Module(name, network, target=target, optimizer=optimizer(name), copy_every=every)

        observed, used = ValueRange(config.variable_dtype), ValueRange(config.variable_dtype)
        older = self.encoder("fixed_encoder_target")
        return Modules(
            Module("fixed_encoder", fixed, target=older, copy_every=every),
            module("encoder", self.encoder(), fixed),
            module("actor", actor, self.embedded_actor("actor_target")),
            module("critic", self.embedded_critic(), self.embedded_critic("critic_target")),
            Module("value_range", observed, target=used, copy_every=every),
            Module("policy", self.policy(fixed.states, actor)),
        )

    def encoder(self, name: str = "encoder") -> StateActionEncoder:
        """Builds an encoder of states and of state-action pairs."""
        return StateActionEncoder(
            *self._sizes, seed=self._word(Stream.ENCODER), name=name, **self._embedding()
        )

    def embedded_actor(self, name: str = "actor") -> EmbeddedActor:
        """Builds an actor, which maps states and zs to actions."""
        config = self.config
        return EmbeddedActor(
            self.observations.size,
            config.embedding_size,
            head=ActionHead(self.actions.continuous),
            activation=config.activation,
            seed=self._word(Stream.ACTOR),
            name=name,
            **self._network(),
        )

    def embedded_critic(self, name: str = "critic") -> EmbeddedCritic:
        """Builds the critics, which map states, actions, zsa and zs to values."""
        config = self.config
        return EmbeddedCritic(
            *self._sizes,
            config.embedding_size,
            n_critics=config.n_critics,
            activation=config.critic_activation,
            seed=self._word(Stream.CRITIC),
            name=name,
            **self._network(),
        )

    def policy(self, encoder: StateEncoder, actor: EmbeddedActor) -> EmbeddedPolicy:
        """Combines a state encoder and an actor into a policy."""
        architecture = self.config.actor_architecture(self.observations, self.actions)
        return EmbeddedPolicy(
            encoder, actor, architecture=architecture, normalization=self.normalization
        )

    def policy_actor(self) -> EmbeddedPolicy:
        """Builds a policy with a separate encoder and actor."""
        encoder = StateActionEncoder.of_states(
            self._sizes[0], seed=self._word(Stream.ENCODER), **self._embedding()
        )
        return self.policy(encoder, self.embedded_actor())

    def least_parameters(self, *, actor_alone: bool = False) -> int:
        """Returns a lower bound on the number of weights: those of hidden layers."""
        config = self.config

        def products(*sizes: int) -> int:
            return sum(a * b for a, b in itertools.pairwise(sizes))

        embedding = products(*config.encoder_hidden_sizes, config.embedding_size)
        first, *others = config.hidden_sizes
        actor = products(config.embedding_size + first, first, *others)
        critic = products(2 * config.embedding_size + first, first, *others)
        if actor_alone:
            return embedding + actor
        return 2 * embedding + actor + config.n_critics * critic

    def _embedding(self) -> dict[str, Any]:
        config = self.config
        return {
            "units": config.embedding_size,
            "hidden_sizes": config.encoder_hidden_sizes,
            "activation": config.encoder_activation,
            "initializer": config.initializer,
            "dtype": config.precision,
        }

    def _network(self) -> dict[str, Any]:
        names = ("hidden_sizes", "initializer")
        return {name: getattr(self.config, name) for name in names} | {
            "dtype": self.config.precision
        }


class TD7(Agent):
    """The TD7 agent. `Agent` documents its constructor and methods."""

    Config = TD7Config
    Builder = TD7Builder
    config: TD7Config

    @property
    def intervals(self) -> tuple[int, ...]:
        """The actor is updated every `policy_delay` updates."""
        return (self.config.policy_delay,)

    def build(self, builder: TD7Builder) -> Modules:  # type: ignore[override]
        """Builds encoders, actor, critics, the range of values, and the policy."""
        return builder.modules()

    def update(self, batch: Batch, random: UpdateRandom, phase: Phase) -> tuple[Tensors, Tensors]:
        """Runs one update: the learning part of the loop in Algorithm 1."""
        scaled = self.normalization or tf.identity
        state, next_state = scaled(batch.observation), scaled(batch.next_observation)
        metrics = self.encoder_step(state, batch.action, next_state)
        with tf.name_scope("target"):
            target = self.target(batch, next_state, random)
        zs = self.fixed.states(state)
        more, td_error = self.critic_step(batch, state, zs, target)
        metrics |= more
        if phase.is_multiple_of(self.config.policy_delay):
            metrics |= self.actor_step(state, zs)
        return metrics, {"td_error": td_error}

    @property
    def fixed(self) -> Any:
        """The fixed encoder, which actor and critics use and no loss trains."""
        return self.modules["fixed_encoder"].network

    def encoder_step(self, state: tf.Tensor, action: tf.Tensor, next_state: tf.Tensor) -> Tensors:
        """Updates the encoder so that zsa predicts the next zs. Returns its metrics."""
        encoder = self.modules["encoder"]
        # L(f, g) = mean (g(f(s), a) - |f(s')|×)², where |·|× stops the gradient (Eq. 2)
        following = encoder.network.states(next_state)
        with tf.name_scope("encoder_loss"), tf.GradientTape() as tape:
            predicted = encoder(state, action, training=True)
            loss = tf.reduce_mean(tf.square(predicted - tf.stop_gradient(following)))
        encoder.minimize(loss, tape)
        return {"losses/encoder": loss}

    def target(self, batch: Batch, next_state: tf.Tensor, random: UpdateRandom) -> tf.Tensor:
        """Returns the critics' regression target y `[B]`, and records it in the value range."""
        encoder, values = self.modules["fixed_encoder"].target, self.modules["value_range"]
        zs = encoder.states(next_state)
        # ã = clip(π'(s', zs') + clip(ε, -c, c), -1, 1), ε ~ N(0, σ)
        next_action = self.outputs(random).target_smoothed(
            self.actor.target(next_state, zs),
            self.config.target_noise,
            self.config.target_noise_clip,
        )
        zsa = encoder.pairs(zs, next_action)
        next_values = self.critic.target(next_state, next_action, zsa, zs)
        # y = r + γ clip(min_i Q'_i(s', ã, zsa', zs'), Q_min, Q_max) (Eq. 9)
        target = losses.clipped_target(batch.reward, batch.discount, values.target(next_values))
        values.network.observe(target)
        return target

    def critic_step(
        self, batch: Batch, state: tf.Tensor, zs: tf.Tensor, target: tf.Tensor
    ) -> tuple[Tensors, tf.Tensor]:
        """Updates the critics. Returns metrics and each row's largest absolute TD error `[B]`."""
        # Huber loss of Q_i(s, a, zsa, zs) - y; only the critics are trained by it
        zsa = self.fixed.pairs(zs, batch.action)
        with tf.name_scope("critic_loss"), tf.GradientTape() as tape:
            values = self.critic(state, batch.action, zsa, zs, training=True)
            loss = self.critic_loss(values, target, batch.mask, batch.weight)
        self.critic.minimize(loss, tape)
        error = tf.reduce_max(tf.abs(losses.td_error(values, target)), axis=0)
        return critic_metrics(loss, values, target, batch.mask), error

    def actor_step(self, state: tf.Tensor, zs: tf.Tensor) -> Tensors:
        """Updates the actor. Returns its metrics."""
        # L(π) = -mean Q_i(s, π(s, zs), g(zs, π(s, zs)), zs), averaged over critics
        with tf.name_scope("actor_loss"), tf.GradientTape() as tape:
            action = self.actor(state, zs, training=True)
            values = self.critic(state, action, self.fixed.pairs(zs, action), zs)
            loss = losses.actor_loss(tf.reduce_mean(values, axis=0))
        self.actor.minimize(loss, tape)
        return actor_metrics(loss, tf.abs(action) > 0.99, None)
