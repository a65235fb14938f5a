"""Building actor and critics as settings and spaces say."""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium

from eagerly.networks import (
    Actor,
    Critic,
    EncodedActor,
    EncodedCritic,
    HistoryEncoder,
    MemoryActor,
    ObservationNormalization,
)
from eagerly.networks.encoders import Encoder
from eagerly.networks.factories import custom_actor, custom_critic, custom_models
from eagerly.networks.initializers import weight_seeds
from eagerly.policies.heads import ActionHead
from eagerly.seeding import Stream, seed_word
from eagerly.spaces import Observations


class ModelBuilder:
    """Builds actor and critics; an agent with other networks has a `Builder` of its own.

    Args:
        config: The settings of an agent.
        observation_space: Observations of the environment.
        action_space: Its actions.
        seed: Seed of the initial weights.
        normalization: What all models scale observations by. Without one each gets its own, if
            `config` says so.

    Attributes:
        config: The settings.
        seed: Seed of the initial weights.
        spaces: Those of observations and actions, as given.
        observations, actions: How the spaces are laid out.
    """

    def __init__(
        self,
        config: Any,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        *,
        seed: int,
        normalization: ObservationNormalization | None = None,
    ) -> None:
        self.config, self.seed, self._shared = config, seed, normalization
        self.spaces = observation_space, action_space
        self.observations, self.actions = config.spaces(*self.spaces)

    def models(self, suffix: str = "") -> tuple[Any, Any]:
        """Builds actor and critics, whose names end in `suffix`.

        What both own stands in the variables of both.
        """
        config, names = self.config, (f"actor{suffix}", f"critic{suffix}")
        if config.models:
            return custom_models(
                config.models,
                self.spaces,
                self._word(Stream.ACTOR),
                config.critics().get("n_critics", 1),
                names=names,
                observations=self.observations.size,
                head=self._head(squashes=False),
                normalization=self._normalization(),
                dtype=config.variable_dtype,
            )
        encoder = None
        if config.encodes(self.observations) and not (config.actor and config.critic):
            encoder = self._encoder(self._normalization())
        return self.actor(names[0], encoder), self.critic(names[1], encoder)

    def least_parameters(self, *, actor_alone: bool = False) -> int:
        """Counts the weights of hidden layers and memories, before any is made.

        There are some more. It tells sizes apart that no machine has, or no file that was saved.

        Args:
            actor_alone: Whether to leave the critics out.
        """
        config = self.config
        sizes = config.hidden_sizes
        weights = sum(a * b for a, b in itertools.pairwise(sizes))
        if config.remembers:
            weights += 3 * config.memory.units**2
        actors = 0 if config.actor or config.models else 1
        critics = 0 if config.critic or config.models else config.critics().get("n_critics", 1)
        return weights * (actors if actor_alone else actors + critics)

    def policy_actor(self) -> Any:
        """Builds an actor to act with; the critics only if one factory makes both."""
        return self.models()[0] if self.config.models else self.actor()

    def actor(self, name: str = "actor", encoder: Encoder | None = None) -> Any:
        """Builds an actor: a model from observations `[B, O]` to actions `[B, A]`.

        Args:
            name: Its name.
            encoder: What it shares with the critics; without one it gets its own.
        """
        config, seed, normalization = self.config, self._word(Stream.ACTOR), self._normalization()
        if config.actor:
            return custom_actor(
                config.actor,
                self.spaces,
                seed,
                observations=self.observations.size,
                head=self._head(squashes=False),
                normalization=normalization,
                name=name,
                dtype=config.variable_dtype,
            )
        parts = config.networks() | {"seed": seed, "name": name, "head": self._head()}
        size = self.actions.size
        if config.remembers:
            return MemoryActor(self._history_encoder(seed, normalization), size, **parts)
        if config.encodes(self.observations):
            return EncodedActor(encoder or self._encoder(normalization), size, **parts)
        return Actor(self.observations.size, size, normalization=normalization, **parts)

    def critic(self, name: str = "critic", encoder: Encoder | None = None) -> Any:
        """Builds the critics: a model `(observation, action) -> [n_critics, B]`.

        Args:
            name: Their name.
            encoder: What they share with the actor; without one they get their own.
        """
        config, seed, normalization = self.config, self._word(Stream.CRITIC), self._normalization()
        masked, sizes = self.observations.masked, (self.observations.size, self.actions.size)
        if config.critic:
            return custom_critic(
                config.critic,
                self.spaces,
                seed,
                config.critics().get("n_critics", 1),
                sizes=sizes,
                masked=masked,
                normalization=normalization,
                name=name,
                dtype=config.variable_dtype,
            )
        parts = config.networks() | config.critics()
        parts |= {"seed": seed, "name": name, "masked": masked}
        if config.remembers:
            history = self._history_encoder(seed, normalization)
            return EncodedCritic(history, sizes[1], **parts)
        if config.encodes(self.observations):
            return EncodedCritic(encoder or self._encoder(normalization), sizes[1], **parts)
        return Critic(*sizes, normalization=normalization, **parts)

    def _word(self, stream: Stream) -> int:
        return seed_word(self.seed, stream)

    def _normalization(self) -> ObservationNormalization | None:
        return self._shared or observation_normalization(self.config, self.observations)

    def _encoder(self, normalization: ObservationNormalization | None) -> Encoder:
        return Encoder(
            self.observations,
            seed=self._word(Stream.ENCODER),
            normalization=normalization,
            **self.config.encoders(),
        )

    def _history_encoder(
        self, seed: int, normalization: ObservationNormalization | None
    ) -> HistoryEncoder:
        """Makes the encoder of the network that has this seed."""
        return HistoryEncoder(
            self.observations.size,
            self.actions.size,
            masked=self.observations.masked,
            normalization=normalization,
            seed=weight_seeds(seed, 1)[0],
            **self.config.memories(),
        )

    def _head(self, *, squashes: bool = True) -> ActionHead:
        actions = self.actions
        return ActionHead(actions.continuous, actions.choices, self.observations.masked, squashes)


def observation_normalization(
    config: Any, observations: Observations
) -> ObservationNormalization | None:
    """Makes the normalisation of observations, if the settings ask for it."""
    if not config.normalize_observations:
        return None
    return ObservationNormalization(
        observations.size, scalable=observations.scalable, dtype=config.variable_dtype
    )
