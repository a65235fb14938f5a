"""Settings that every agent has."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import gymnasium

from eagerly.buffers import FrameLayout, Frames, Layout, RowLayout, SequenceLayout
from eagerly.importing import FACTORY, split_name
from eagerly.policies.exploration import EXPLORATIONS
from eagerly.policies.numpy_actor import ACTIVATIONS
from eagerly.settings import (
    CONTINUOUS,
    DISCRETE,
    check_settings,
    setting,
    shapes_nothing,
)
from eagerly.spaces import Actions, Observations

# Names of what is in TensorFlow's half: no declaration of a setting needs that.
MODES = ("eager", "graph", "xla")
MEMORIES = ("lstm", "gru", "attention")
INITIALIZERS = (
    "glorot_uniform",
    "glorot_normal",
    "he_uniform",
    "he_normal",
    "lecun_uniform",
    "lecun_normal",
    "orthogonal",
    "torch_linear",
)
PRECISIONS = ("float32", "float64", "mixed_bfloat16")
NO_MEMORY = "none"
BOTH = ("actor", "critic")  # networks that a setting shapes
_WITH_MEMORY = ("memory", MEMORIES)


@dataclass(frozen=True, kw_only=True)
class AgentConfig:
    """Settings that every agent has. "authors" is the public code of the authors of TD3.

    Attributes:
        PRESETS: Settings that belong together, by name.
    """

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = MappingProxyType({})

    hidden_sizes: tuple[int, ...] = setting(
        (256, 256), "Hidden units (authors)", at_least=1, at_most=2**14, longest=64, shapes=BOTH
    )
    activation: str = setting(
        "relu", "Hidden activation (authors)", choices=tuple(ACTIVATIONS), shapes=BOTH
    )
    layer_norm: bool = setting(
        False, "Normalise hidden layers before their activation", shapes=BOTH
    )
    normalize_observations: bool = setting(
        False, "Scale observations by their running mean and deviation"
    )
    initializer: str = setting(
        "glorot_uniform", "Initial weights (Keras)", choices=INITIALIZERS, shapes=BOTH
    )
    actor_learning_rate: float = setting(3e-4, "Adam's step size, actor (authors)", above=0)
    critic_learning_rate: float = setting(3e-4, "Adam's step size, critics (authors)", above=0)
    adam_epsilon: float = setting(
        1e-8, "Adam's epsilon, where Keras adds it (docs/td3.md)", above=0
    )
    actor: str | Callable[..., Any] = setting(
        "", "An actor of your own: module:factory, in Python also the factory (docs/own-models.md)"
    )
    critic: str | Callable[..., Any] = setting("", "Critics of your own, in the same way")
    models: str | Callable[..., Any] = setting(
        "", "Both of your own, from one factory, so that they can share what they like"
    )
    shared_gradient: str = setting(
        "critic",
        "Whose loss moves variables that actor and critics share",
        choices=("critic", "actor", "both"),
    )
    encoder_units: int = setting(
        64,
        "Features of each entry of an observation, of images among them (docs/spaces.md)",
        at_least=1,
        at_most=2**14,
        shapes=BOTH,
    )
    random_shift: int = setting(
        0,
        "How far images are shifted at random in updates (Kostrikov et al. 2021: 4)",
        unit="pixels",
        at_least=0,
        at_most=64,
    )
    batch_size: int = setting(
        256,
        "Per update (authors)",
        unit="transitions",
        at_least=1,
        at_most=2**20,
        needs=("memory", (NO_MEMORY,)),
    )
    memory: str = setting(
        NO_MEMORY,
        "What actor and critics remember of an episode with (docs/memory.md)",
        choices=(NO_MEMORY, *MEMORIES),
    )
    memory_units: int = setting(
        64, "Length of what is remembered", at_least=1, at_most=2**14, needs=_WITH_MEMORY
    )
    attention_heads: int = setting(
        4,
        "Heads of attention, a divisor of memory_units",
        at_least=1,
        at_most=2**14,
        needs=("memory", ("attention",)),
    )
    sequence_length: int = setting(
        32,
        "Length of the windows that are learned from, and how far attention sees",
        unit="steps",
        at_least=2,
        at_most=2**12,
        needs=_WITH_MEMORY,
    )
    burn_in: int = setting(
        0,
        "First steps of a window that only warm the memory (Kapturowski et al. 2019)",
        unit="steps",
        at_least=0,
        needs=_WITH_MEMORY,
    )
    sequences_per_update: int = setting(
        32,
        "In place of batch_size",
        unit="windows",
        at_least=1,
        at_most=2**16,
        needs=_WITH_MEMORY,
    )
    tau: float = setting(0.005, "Step of targets to networks (authors)", above=0, at_most=1)
    exploration: str = setting(
        "gaussian",
        "Exploration noise: independent, or correlated in time",
        choices=EXPLORATIONS,
        actions=CONTINUOUS,
    )
    exploration_noise: float = setting(
        0.1,
        "Deviation of exploration noise per step (authors)",
        unit="of [-1, 1]",
        at_least=0,
        actions=CONTINUOUS,
    )
    ou_theta: float = setting(
        0.15,
        "Share by which the noise returns to 0 in a step (Lillicrap et al. 2016)",
        above=0,
        at_most=1,
        needs=("exploration", ("ornstein_uhlenbeck",)),
        actions=CONTINUOUS,
    )
    exploration_epsilon: float = setting(
        0.1,
        "Share of choices that are uniformly random while exploring",
        at_least=0,
        at_most=1,
        actions=DISCRETE,
    )
    gumbel_temperature: float = setting(
        1.0,
        "Temperature of the softmax that gives choices their gradient (Jang et al. 2017)",
        at_least=1e-3,
        at_most=1e3,
        actions=DISCRETE,
    )
    logit_penalty: float = setting(
        1e-3,
        "Weight c of c mean (l - mean l)² of choices' logits (Lowe et al. 2017, code)",
        at_least=0,
        actions=DISCRETE,
    )
    action_masks: bool = setting(
        True,
        'Obey info["action_mask"], which choices are valid (docs/spaces.md)',
        actions=DISCRETE,
    )
    mode: str = setting("xla", "How the train body runs; eager is for debugging", choices=MODES)
    precision: str = setting("float32", "Of the networks", choices=PRECISIONS)

    def __post_init__(self) -> None:
        check_settings(self)
        own = [name for name in ("actor", "critic", "models") if getattr(self, name)]
        for name in own:
            given = getattr(self, name)
            if isinstance(given, str) and not given.startswith(FACTORY):
                split_name(given, name, "module:factory")
        if "models" in own and len(own) > 1:
            raise ValueError(f"models makes actor and critics: leave {own[0]} out")
        for field in dataclasses.fields(self):
            is_changed = getattr(self, field.name) != field.default
            if is_changed and shapes_nothing(field, lambda name: getattr(self, name)):
                raise ValueError(
                    f"{field.name} is for networks that are not your own; what takes their place "
                    "is made by your factory: leave it out"
                )
        if own and self.remembers:
            raise ValueError(f"memory {self.memory} is not for models of your own: leave it out")
        if self.remembers and self.burn_in > self.sequence_length - 2:
            raise ValueError(
                f"burn_in must leave 2 steps of sequence_length, {self.sequence_length}, to learn "
                f"from; got {self.burn_in}"
            )
        if self.memory == "attention" and self.memory_units % self.attention_heads:
            raise ValueError(
                f"attention_heads must be a divisor of memory_units, {self.memory_units}; got "
                f"{self.attention_heads}"
            )

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

    def spaces(
        self, observation_space: gymnasium.Space, action_space: gymnasium.Space
    ) -> tuple[Observations, Actions]:
        """Returns how observations and actions of an environment are laid out.

        Raises:
            ValueError: If a space is not supported.
        """
        actions = Actions(action_space)
        masked = actions.mask_size if self.action_masks else 0
        return Observations(observation_space, masked), actions

    def check_spaces(self, observations: Observations, actions: Actions) -> None:
        """Refuses settings that do nothing, or are impossible, with such spaces.

        Raises:
            ValueError: Naming the setting.
        """
        if observations.images and self.remembers:
            raise ValueError(
                f"memory is not for images; got {observations.space}. Stack their frames instead, "
                "with gymnasium.wrappers.FrameStackObservation"
            )
        default = {field.name: field.default for field in dataclasses.fields(self)}
        if not observations.images and self.random_shift:
            raise ValueError(f"random_shift is for images; got {observations.space}")
        if self.normalize_observations and not observations.scalable.any():
            raise ValueError(f"normalize_observations is for vectors; got {observations.space}")
        if self.shared_gradient != default["shared_gradient"] and (self.actor or self.critic):
            raise ValueError("shared_gradient is for what actor and critics share: give `models`")
        if not (self.models or self.encodes(observations)):
            for name, more in (("shared_gradient", "your own `models`, "), ("encoder_units", "")):
                if getattr(self, name) != default[name]:
                    got = f"memory {self.memory}" if self.remembers else observations.space
                    raise ValueError(
                        f"{name} is for {more}images, and entries of a Dict or Tuple, without a "
                        f"memory; got {got}"
                    )
        there = {DISCRETE: actions.choices, CONTINUOUS: actions.continuous, "": True}
        for field in dataclasses.fields(self):
            kind = field.metadata["actions"]
            if not there[kind] and getattr(self, field.name) != field.default:
                raise ValueError(f"{field.name} is for {kind} actions; got {actions.space}")

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
