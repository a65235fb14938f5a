"""Agent settings, and the layouts and architectures that follow from settings and spaces."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import gymnasium

from eagerly.agents.agent_settings import NO_HINDSIGHT, NO_MEMORY, NOT_QUANTIZED, AgentSettings
from eagerly.buffers import FINAL, FrameLayout, Frames, Layout, RowLayout, SequenceLayout
from eagerly.policies.architecture import ActorArchitecture, EntryEncoders, MemoryCore
from eagerly.policies.heads import ActionHead
from eagerly.spaces import Actions, Observations


class AgentConfig(AgentSettings):
    """The settings of an agent; an algorithm's own settings are those of a subclass.

    Attributes:
        PRESETS: Settings that belong together, by name.
        RUN_DEFAULTS: Settings of a new run whose defaults are others with this algorithm.
        FROM_ENVIRONMENTS: Settings that are taken from presets of environments, which were found
            with TD3 and DDPG; None for all.
    """

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = MappingProxyType({})
    RUN_DEFAULTS: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    FROM_ENVIRONMENTS: ClassVar[frozenset[str] | None] = None

    @property
    def variable_dtype(self) -> str:
        """The dtype of all variables; networks may compute in less."""
        return "float32" if self.precision == "mixed_bfloat16" else self.precision

    @property
    def has_custom_models(self) -> bool:
        """Whether actor or critics come from a factory of the user."""
        return bool(self.actor or self.critic or self.models)

    @property
    def remembers(self) -> bool:
        """Whether actor and critics have a memory."""
        return self.memory != NO_MEMORY

    @property
    def rows_per_step(self) -> int:
        """Transitions that the buffer gets of each step, those with other goals among them."""
        other = {NO_HINDSIGHT: 0, FINAL: 1}
        return 1 + other.get(self.hindsight, self.hindsight_goals)

    def spaces(
        self, observation_space: gymnasium.Space, action_space: gymnasium.Space
    ) -> tuple[Observations, Actions]:
        """Returns how observations and actions of an environment are laid out.

        Raises:
            ValueError: If a space is not supported, or `ignore_entries` does not fit it.
        """
        actions = Actions(action_space)
        masked = actions.mask_size if self.action_masks else 0
        ignored = [name.strip() for name in self.ignore_entries.split(",") if name.strip()]
        return Observations(observation_space, masked, ignored), actions

    def check_spaces(self, observations: Observations, actions: Actions) -> None:
        """Checks that the settings are possible with these spaces.

        Raises:
            ValueError: Naming the setting.
        """
        if observations.images and self.remembers:
            raise ValueError(
                f"memory is not for images; got {observations.space}. Stack their frames instead, "
                "with gymnasium.wrappers.FrameStackObservation"
            )
        for entry in observations.images:
            if self.random_shift >= min(entry.image_shape[:2]):
                raise ValueError(
                    f"random_shift must be less than the sides of image {entry.path!r}, which is "
                    f"{entry.image_shape[0]} by {entry.image_shape[1]} pixels; got "
                    f"{self.random_shift}"
                )

    def encodes(self, observations: Observations) -> bool:
        """Whether networks have an encoder in front, for each entry of an observation."""
        return not observations.is_one_vector and not self.remembers

    def layout(self, observations: Observations, actions: Actions) -> Layout:
        """Returns what a row of the replay buffer holds."""
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
        """Returns what the actor consists of that settings and spaces ask for.

        Returns None if the actor is your own model, which only its `Builder` can make.
        """
        if self.actor or self.models:
            return None
        encoder: EntryEncoders | MemoryCore | None = None
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
        """Returns what encoders are made of."""
        return {
            "units": self.encoder_units,
            "activation": self.activation,
            "initializer": self.initializer,
            "dtype": self.precision,
        }

    def memories(self) -> dict[str, Any]:
        """Returns what encoders of histories are made of."""
        return {
            "kind": self.memory,
            "units": self.memory_units,
            "heads": self.attention_heads,
            "length": self.sequence_length,
            "activation": self.activation,
            "initializer": self.initializer,
            # It is computed in the dtype of the weights, also with mixed precision.
            "dtype": self.variable_dtype,
        }

    def networks(self) -> dict[str, Any]:
        """What actor and critics have in common."""
        names = ("hidden_sizes", "activation", "layer_norm", "initializer")
        return {name: getattr(self, name) for name in names} | {"dtype": self.precision}

    def critics(self) -> dict[str, Any]:
        """What makes the critics differ from the actor."""
        return {}
