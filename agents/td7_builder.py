"""Building the networks of TD7."""

from __future__ import annotations

import itertools
from typing import Any

from eagerly.agents.builder import ModelBuilder
from eagerly.agents.modules import Module, Modules
from eagerly.agents.td7_config import TD7Config
from eagerly.agents.value_range import ValueRange
from eagerly.networks.normalization import ObservationNormalization
from eagerly.networks.sale import (
    EmbeddedActor,
    EmbeddedCritic,
    EmbeddedPolicy,
    StateActionEncoder,
    StateEncoder,
)
from eagerly.policies.heads import ActionHead
from eagerly.seeding import Stream


class TD7Builder(ModelBuilder):
    """Builds encoders, actors and critics, each one whenever it is asked for with equal weights."""

    config: TD7Config

    def modules(self) -> Modules:
        """Builds everything that TD7 learns and keeps."""
        config, rates, every = self.config, self.rates, self.config.copy_every
        fixed, actor = self.encoder("fixed_encoder"), self.embedded_actor()
        modules = [
            Module(
                "encoder",
                self.encoder(),
                optimizer=rates.optimizer(config.encoder_learning_rate, "encoder_optimizer"),
            ),
            Module("fixed_encoder", fixed, target=self.encoder("fixed_encoder_target")),
            Module(
                "actor",
                actor,
                target=self.embedded_actor("actor_target"),
                optimizer=rates.optimizer(config.actor_learning_rate, "actor_optimizer"),
                copy_every=every,
            ),
            Module(
                "critic",
                self.critic(),
                target=self.critic("critic_target"),
                optimizer=rates.optimizer(config.critic_learning_rate, "critic_optimizer"),
                copy_every=every,
            ),
            Module("value_range", ValueRange(config.variable_dtype)),
            Module("policy", self.policy(fixed.states, actor, self.normalization)),
        ]
        if config.policy_checkpoints:
            modules.append(Module("checkpoint", self.policy_actor()))
        return Modules(*modules)

    def encoder(self, name: str = "encoder") -> StateActionEncoder:
        """Builds an encoder of states, and of states and actions."""
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

    def critic(self, name: str = "critic", encoder: Any = None) -> EmbeddedCritic:
        """Builds the critics, which map states, actions, zsa and zs to values.

        Args:
            name: Their name.
            encoder: Not used: TD7 has no encoder of images that critics and actor could share.
        """
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

    def policy(
        self,
        encoder: StateEncoder,
        actor: EmbeddedActor,
        normalization: ObservationNormalization | None,
    ) -> EmbeddedPolicy:
        """Makes a policy of an encoder of states and an actor.

        Args:
            encoder: Makes zs.
            actor: The actor.
            normalization: What observations go through first.
        """
        architecture = self.config.actor_architecture(self.observations, self.actions)
        return EmbeddedPolicy(
            encoder, actor, architecture=architecture, normalization=normalization
        )

    def policy_actor(self) -> EmbeddedPolicy:
        """Builds a policy that shares no variable with anything else."""
        encoder = StateActionEncoder.of_states(
            self._sizes[0], seed=self._word(Stream.ENCODER), **self._embedding()
        )
        return self.policy(encoder, self.embedded_actor(), self.new_normalization())

    def least_parameters(self, *, actor_alone: bool = False) -> int:
        """Counts the weights of hidden layers, before any is made."""
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
