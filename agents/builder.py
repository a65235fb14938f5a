"""Builds actor and critics from settings and spaces."""

from __future__ import annotations

import itertools
from functools import cached_property
from typing import Any

import gymnasium

from eagerly.agents.agent_settings import NOT_QUANTIZED
from eagerly.agents.clock import Clock
from eagerly.agents.rates import LearningRates
from eagerly.networks import (
    Actor,
    Critic,
    EncodedActor,
    EncodedCritic,
    HistoryEncoder,
    LastColumns,
    MemoryActor,
    ObservationNormalization,
)
from eagerly.networks.custom import CustomActor, CustomCritic
from eagerly.networks.encoders import Encoder
from eagerly.networks.factories import made
from eagerly.networks.initializers import weight_seeds
from eagerly.networks.models import CriticModel, Model
from eagerly.networks.quantization_ranges import Quantization
from eagerly.policies.heads import ActionHead
from eagerly.seeding import Stream, seed_word
from eagerly.spaces import Observations


class ModelBuilder:
    """Builds actor and critics. An agent with other networks sets `Builder` to a subclass.

    Args:
        config: The agent's settings.
        observation_space: The environment's observation space.
        action_space: The environment's action space.
        seed: Seed of the initial weights.

    Attributes:
        config, seed: As given.
        spaces: The observation and action spaces, as given.
        observations, actions: The layouts of the spaces.
    """

    def __init__(
        self,
        config: Any,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        *,
        seed: int,
    ) -> None:
        self.config, self.seed = config, seed
        self.spaces = observation_space, action_space
        self.observations, self.actions = config.spaces(*self.spaces)
        self._sizes = self.observations.size, self.actions.size

    @cached_property
    def clock(self) -> Clock:
        """The update counter shared by all modules."""
        return Clock()

    @cached_property
    def rates(self) -> LearningRates:
        """Creates optimizers, as in `rates.optimizer(learning_rate, "actor_optimizer")`.

        They clip gradients, decay weights and follow the learning-rate schedule as configured.
        """
        return LearningRates(self.config, self.clock)

    @cached_property
    def normalization(self) -> ObservationNormalization | None:
        """Normalizes observations `[B, O]` for all networks; None if the settings disable it."""
        if not self.config.normalize_observations:
            return None
        return ObservationNormalization(
            self.observations.size,
            scalable=self.observations.scalable,
            dtype=self.config.variable_dtype,
            floor=self.config.normalization_floor,
        )

    @cached_property
    def columns(self) -> LastColumns | None:
        """Selects the actor's columns of observations `[B, O]`; None if it sees all columns."""
        if not self.config.critic_entries or self.observations.actor is self.observations:
            return None
        return LastColumns(
            self.observations.actor.size, self.normalization, self.config.variable_dtype
        )

    def models(self, suffix: str = "") -> tuple[Model, CriticModel]:
        """Builds actor and critics, whose names end in `suffix`.

        Variables shared by actor and critics appear in both models' lists.
        """
        config, names = self.config, (f"actor{suffix}", f"critic{suffix}")
        if config.models:
            actor, critic = self._made("models", self.observations, self._word(Stream.ACTOR))
            more = self.custom_arguments()
            adapted = CustomActor(actor, name=names[0], **more)
            return adapted, CustomCritic([critic], self._count(), name=names[1], **more)
        encoder, is_shared = None, self.observations.actor is self.observations
        if is_shared and config.encodes(self.observations) and not (config.actor and config.critic):
            encoder = self._encoder(self.observations, self.normalization)
        return self.actor(names[0], encoder), self.critic(names[1], encoder)

    def check_quantized(self, actor: Any) -> None:
        """Validates that the actor is quantized if the settings require it.

        Raises:
            ValueError: If it is not. The message explains how to build a quantized actor.
        """
        described = getattr(actor, "architecture", None)
        if self.config.quantize != NOT_QUANTIZED and not getattr(described, "quantized", False):
            raise ValueError(
                "quantize has no effect on this actor: build it with builder.models() or "
                "builder.actor(), or remove the setting"
            )

    def least_parameters(self, *, actor_alone: bool = False) -> int:
        """Returns a lower bound on the number of weights, without creating any.

        It counts hidden layers and recurrent cores only. This suffices to reject networks that are
        too large for the memory or for a saved file.

        Args:
            actor_alone: Whether to leave the critics out.
        """
        config = self.config
        weights = sum(a * b for a, b in itertools.pairwise(config.hidden_sizes))
        if config.remembers:
            weights += 3 * config.memory_units**2
        actors = 0 if config.actor or config.models else 1
        critics = 0 if config.critic or config.models else self._count()
        return weights * (actors if actor_alone else actors + critics)

    def policy_actor(self) -> Any:
        """Builds another acting model, and critics only if one factory creates both."""
        return self.models()[0] if self.config.models else self.actor()

    def actor(self, name: str = "actor", encoder: Encoder | None = None) -> Any:
        """Builds an actor: a model from observations `[B, O]` to actions `[B, A]`.

        Args:
            name: Its name.
            encoder: An encoder shared with the critics; if None, a separate one is built if needed.

        Raises:
            ValueError: If a shared encoder would show the actor entries that only critics see.
        """
        config, seed = self.config, self._word(Stream.ACTOR)
        observations, normalization = self.observations.actor, self.columns or self.normalization
        if self.columns is not None and encoder is not None:
            raise ValueError("critic_entries requires an actor with a separate encoder; got one")
        if config.actor:
            more: dict[str, Any] = {"observations": observations.size, "columns": None}
            more = self.custom_arguments() | more | {"normalization": normalization}
            return CustomActor(self._made("actor", observations, seed), name=name, **more)
        parts = config.networks() | {"seed": seed, "name": name, "head": self._head()}
        front = self._front(seed, encoder, observations, normalization)
        if front is None:
            parts |= {"quantization": self._quantization(), "normalization": normalization}
            return Actor(observations.size, self.actions.size, **parts)
        kind = MemoryActor if config.remembers else EncodedActor
        return kind(front, self.actions.size, **parts)

    def critic(self, name: str = "critic", encoder: Encoder | None = None) -> Any:
        """Builds the critics: a model `(observation, action) -> [n_critics, B]`.

        Args:
            name: Their name.
            encoder: An encoder shared with the actor; if None, a separate one is built if needed.
        """
        config, seed = self.config, self._word(Stream.CRITIC)
        if config.critic:
            count = self._count()
            seeds = range(seed, seed + count)
            models = (self._made("critic", self.observations, each) for each in seeds)
            return CustomCritic(models, count, name=name, **self.custom_arguments())
        parts = config.networks() | config.critics()
        parts |= {"seed": seed, "name": name, "masked": self.observations.masked}
        front = self._front(seed, encoder, self.observations, self.normalization)
        if front is None:
            return Critic(*self._sizes, normalization=self.normalization, **parts)
        return EncodedCritic(front, self.actions.size, **parts)

    def _quantization(self) -> Quantization | None:
        config = self.config
        if config.quantize == NOT_QUANTIZED:
            return None
        return Quantization(
            len(config.hidden_sizes),
            freeze_steps=config.quantize_freeze_steps,
            passed=self.clock.passed,
        )

    def _word(self, stream: Stream) -> int:
        return seed_word(self.seed, stream)

    def _count(self) -> int:
        return int(self.config.critics().get("n_critics", 1))

    def _made(self, role: str, observations: Observations, seed: int) -> Any:
        """Calls a custom factory with spaces that lack the entries that its networks ignore."""
        spaces = observations.kept_space, self.spaces[1]
        return made(getattr(self.config, role), role, spaces, seed)

    def _encoder(self, observations: Observations, normalization: Any) -> Encoder:
        return Encoder(
            observations,
            seed=self._word(Stream.ENCODER),
            normalization=normalization,
            **self.config.encoders(),
        )

    def _front(
        self, seed: int, encoder: Encoder | None, observations: Observations, normalization: Any
    ) -> Encoder | HistoryEncoder | None:
        """Returns the encoder of a network, or None if the network needs no encoder."""
        if not self.config.remembers:
            if encoder is None and self.config.encodes(observations):
                return self._encoder(observations, normalization)
            return encoder
        return HistoryEncoder(
            observations.size,
            self.actions.size,
            masked=observations.masked,
            normalization=normalization,
            seed=weight_seeds(seed, 1)[0],
            **self.config.memories(),
        )

    def custom_arguments(self) -> dict[str, Any]:
        """Returns the arguments shared by `CustomActor` and `CustomCritic`."""
        return {
            "observations": self.observations.size,
            "head": self._head(squashes=False),
            "normalization": self.normalization,
            "dtype": self.config.variable_dtype,
            "columns": self.observations.space_columns,
        }

    def _head(self, *, squashes: bool = True) -> ActionHead:
        actions = self.actions
        return ActionHead(actions.continuous, actions.choices, self.observations.masked, squashes)
