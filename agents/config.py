"""Agent settings, and the layouts and architectures that follow from settings and spaces."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import gymnasium

from eagerly.agents.agent_settings import (
    MIXED,
    NO_HINDSIGHT,
    NO_MEMORY,
    NOT_QUANTIZED,
    AgentSettings,
)
from eagerly.buffers import FINAL, FrameLayout, Frames, Layout, RowLayout, SequenceLayout
from eagerly.policies.architecture import ActorArchitecture, EntryEncoders, MemoryCore
from eagerly.policies.heads import ActionHead
from eagerly.spaces import Actions, Observations


class AgentConfig(AgentSettings):
    """Base class of an agent's settings. Each algorithm adds its own settings in a subclass.

    Attributes:
        PRESETS: Sets of settings of agent and run that belong together, by name.
        RUN_DEFAULTS: Defaults of run settings that are specific to this algorithm.
        FROM_ENVIRONMENTS: Names of the settings that environment presets may set, or None for all.
            Environment presets were tuned with TD3 and DDPG.
        EXAMPLES: Options of complete commands, for `eagerly train AGENT --help`.
    """

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = MappingProxyType({})
    RUN_DEFAULTS: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    FROM_ENVIRONMENTS: ClassVar[frozenset[str] | None] = None
    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "--env Pendulum-v1 --steps 10000 --evaluate-every-steps 1000",
        "--env Hopper-v5 --num-envs 4 --batch-size 128 --run-dir runs/hopper",
        "--env HalfCheetah-v5 --steps 200000 --seeds 0..4 --jobs 2",
    )

    @property
    def variable_dtype(self) -> str:
        """The dtype of all variables; networks may compute in lower precision."""
        # A builder that reads only this property ignores mixed precision, so `settings.recorded`
        # must not count this comparison.
        if object.__getattribute__(self, "precision") == MIXED:
            return "float32"
        return self.precision

    @property
    def has_custom_models(self) -> bool:
        """True if a custom factory creates the actor or the critics."""
        return bool(self.actor or self.critic or self.models)

    @property
    def remembers(self) -> bool:
        """True if actor and critics are recurrent."""
        return self.memory != NO_MEMORY

    @property
    def rows_per_step(self) -> int:
        """Transitions stored per environment step, including those with hindsight goals."""
        other = {NO_HINDSIGHT: 0, FINAL: 1}
        return 1 + other.get(self.hindsight, self.hindsight_goals)

    @property
    def uses_terminal_observations(self) -> bool:
        """True if the observation after a termination affects training."""
        return self.hindsight != NO_HINDSIGHT

    def spaces(
        self, observation_space: gymnasium.Space, action_space: gymnasium.Space
    ) -> tuple[Observations, Actions]:
        """Returns the layouts of an environment's observations and actions.

        Raises:
            ValueError: If a space is not supported, or `ignore_entries` or `critic_entries` does
                not match the observation space.
        """
        actions = Actions(action_space)
        masked = actions.mask_size if self.action_masks else 0
        ignored, of_critics = (
            [name.strip() for name in names.split(",") if name.strip()]
            for names in (self.ignore_entries, self.critic_entries)
        )
        return Observations(observation_space, masked, ignored, of_critics), actions

    def check_spaces(self, observations: Observations, actions: Actions) -> None:
        """Validates the settings against the spaces.

        Raises:
            ValueError: If a setting is impossible with these spaces. The message names it.
        """
        if observations.images and self.remembers:
            raise ValueError(
                f"memory does not support image observations; got {observations.space}: stack "
                "frames with gymnasium.wrappers.FrameStackObservation instead"
            )
        for entry in observations.images:
            if self.random_shift >= min(entry.image_shape[:2]):
                raise ValueError(
                    f"random_shift must be less than the height and width of image {entry.path!r}, "
                    f"{entry.image_shape[0]} by {entry.image_shape[1]} pixels; got "
                    f"{self.random_shift}"
                )

    def encodes(self, observations: Observations) -> bool:
        """Returns whether networks start with an encoder for each entry of an observation."""
        return not observations.is_one_vector and not self.remembers

    def layout(self, observations: Observations, actions: Actions) -> Layout:
        """Returns the row layout of the replay buffer."""
        sizes = observations.size, actions.size
        if self.remembers:
            return SequenceLayout(*sizes, self.sequence_length, self.burn_in)
        if not observations.images:
            return RowLayout(*sizes)
        images = []
        for entry in observations.images:
            count, *frame = entry.frames
            images.append(Frames(entry.start, count, math.prod(frame)))
        return FrameLayout(*sizes, tuple(images))

    def actor_architecture(
        self, observations: Observations, actions: Actions
    ) -> ActorArchitecture | None:
        """Returns the actor's architecture according to settings and spaces.

        Returns None for a custom actor, whose architecture is unknown: only `Builder` can create
        it.
        """
        if self.actor or self.models:
            return None
        encoder: EntryEncoders | MemoryCore | None = None
        observations = observations.actor
        if self.remembers:
            names = ("kind", "units", "heads", "length")
            encoder = MemoryCore(**{name: self.memories()[name] for name in names})
        elif self.encodes(observations):
            encoder = EntryEncoders(entries=tuple(observations.entries), units=self.encoder_units)
        return ActorArchitecture(
            observation_size=observations.size,
            head=ActionHead(actions.continuous, actions.choices, observations.masked),
            hidden_sizes=self.hidden_sizes,
            activation=self.activation,
            layer_norm=self.layer_norm,
            normalized=self.normalize_observations,
            encoder=encoder,
            quantized=self.quantize != NOT_QUANTIZED,
        )

    def encoders(self) -> dict[str, Any]:
        """Returns the arguments of `networks.encoders.Encoder` that follow from the settings."""
        return {
            "units": self.encoder_units,
            "activation": self.activation,
            "initializer": self.initializer,
            "dtype": self.precision,
        }

    def memories(self) -> dict[str, Any]:
        """Returns the arguments of `networks.HistoryEncoder` that follow from the settings."""
        return {
            "kind": self.memory,
            "units": self.memory_units,
            "heads": self.attention_heads,
            "length": self.sequence_length,
            "activation": self.activation,
            "initializer": self.initializer,
            # Recurrent networks compute in the dtype of their weights, even with mixed precision.
            "dtype": self.variable_dtype,
        }

    def networks(self) -> dict[str, Any]:
        """Returns the network arguments shared by actor and critics."""
        names = ("hidden_sizes", "activation", "layer_norm", "initializer")
        return {name: getattr(self, name) for name in names} | {"dtype": self.precision}

    def critics(self) -> dict[str, Any]:
        """Returns the network arguments specific to the critics."""
        return {}
