"""Settings that every agent has."""

from __future__ import annotations

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
    Condition,
    Situation,
    check_acting,
    check_settings,
    setting,
    with_setting,
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
_WITH_MEMORY = with_setting("memory", *MEMORIES)


def _unless_replaced(*networks: str) -> Condition:
    """A setting that shapes networks acts unless custom models replace all of them."""
    return Condition(
        "for networks that are not your own",
        lambda s: not (s.of("models") or all(s.of(network) for network in networks)),
        lambda s: "your own, which your factory makes: leave it out",
    )


def _encodes(s: Situation) -> bool:
    return not (s.observations.is_one_vector or s.of("memory") != NO_MEMORY)


def _without_encoder(s: Situation) -> Any:
    is_memory = s.of("memory") != NO_MEMORY
    return f"memory {s.of('memory')}" if is_memory else s.observations.space


def _on(part: str, what: str, there: Callable[[Any], Any]) -> Condition:
    """A setting acts on some observations or actions, the `part` that `there` looks at."""
    return Condition(
        f"for {what}",
        lambda s: getattr(s, part) is None or bool(there(getattr(s, part))),
        lambda s: getattr(s, part).space,
    )


SHAPES_NETWORKS = _unless_replaced("actor", "critic")
SHAPES_CRITICS = _unless_replaced("critic")
ON_DISCRETE = _on("actions", "discrete actions", lambda actions: actions.choices)
ON_CONTINUOUS = _on("actions", "continuous actions", lambda actions: actions.continuous)
_ON_IMAGES = _on("observations", "images", lambda observations: observations.images)
_ON_VECTORS = _on("observations", "vectors", lambda observations: observations.scalable.any())
_IN_ENCODERS = Condition(
    "for images, and entries of a Dict or Tuple, without a memory",
    lambda s: s.observations is None or _encodes(s),
    _without_encoder,
)
_ON_SHARED = (
    Condition(
        "for what actor and critics share, such as your own `models`",
        lambda s: not (s.of("actor") or s.of("critic")),
        lambda s: "an actor or critic of your own",
    ),
    Condition(
        "for your own `models`, images, and entries of a Dict or Tuple, without a memory",
        lambda s: s.observations is None or bool(s.of("models")) or _encodes(s),
        _without_encoder,
    ),
)


@dataclass(frozen=True, kw_only=True)
class AgentConfig:
    """Settings that every agent has. "authors" is the public code of the authors of TD3.

    Attributes:
        PRESETS: Settings that belong together, by name.
    """

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = MappingProxyType({})

    hidden_sizes: tuple[int, ...] = setting(
        (256, 256),
        "Hidden units (authors)",
        at_least=1,
        at_most=2**14,
        longest=64,
        acts=SHAPES_NETWORKS,
    )
    activation: str = setting(
        "relu", "Hidden activation (authors)", choices=tuple(ACTIVATIONS), acts=SHAPES_NETWORKS
    )
    layer_norm: bool = setting(
        False, "Normalise hidden layers before their activation", acts=SHAPES_NETWORKS
    )
    normalize_observations: bool = setting(
        False, "Scale observations by their running mean and deviation", acts=_ON_VECTORS
    )
    initializer: str = setting(
        "glorot_uniform", "Initial weights (Keras)", choices=INITIALIZERS, acts=SHAPES_NETWORKS
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
        acts=_ON_SHARED,
    )
    encoder_units: int = setting(
        64,
        "Features of each entry of an observation, of images among them (docs/spaces.md)",
        at_least=1,
        at_most=2**14,
        acts=(SHAPES_NETWORKS, _IN_ENCODERS),
    )
    random_shift: int = setting(
        0,
        "How far images are shifted at random in updates (Kostrikov et al. 2021: 4)",
        unit="pixels",
        at_least=0,
        at_most=64,
        acts=_ON_IMAGES,
    )
    batch_size: int = setting(
        256,
        "Per update (authors)",
        unit="transitions",
        at_least=1,
        at_most=2**20,
        acts=with_setting("memory", NO_MEMORY),
    )
    memory: str = setting(
        NO_MEMORY,
        "What actor and critics remember of an episode with (docs/memory.md)",
        choices=(NO_MEMORY, *MEMORIES),
    )
    memory_units: int = setting(
        64, "Length of what is remembered", at_least=1, at_most=2**14, acts=_WITH_MEMORY
    )
    attention_heads: int = setting(
        4,
        "Heads of attention, a divisor of memory_units",
        at_least=1,
        at_most=2**14,
        acts=with_setting("memory", "attention"),
    )
    sequence_length: int = setting(
        32,
        "Length of the windows that are learned from, and how far attention sees",
        unit="steps",
        at_least=2,
        at_most=2**12,
        acts=_WITH_MEMORY,
    )
    burn_in: int = setting(
        0,
        "First steps of a window that only warm the memory (Kapturowski et al. 2019)",
        unit="steps",
        at_least=0,
        acts=_WITH_MEMORY,
    )
    sequences_per_update: int = setting(
        32,
        "In place of batch_size",
        unit="windows",
        at_least=1,
        at_most=2**16,
        acts=_WITH_MEMORY,
    )
    tau: float = setting(0.005, "Step of targets to networks (authors)", above=0, at_most=1)
    exploration: str = setting(
        "gaussian",
        "Exploration noise: independent, or correlated in time",
        choices=EXPLORATIONS,
        acts=ON_CONTINUOUS,
    )
    exploration_noise: float = setting(
        0.1,
        "Deviation of exploration noise per step (authors)",
        unit="of [-1, 1]",
        at_least=0,
        acts=ON_CONTINUOUS,
    )
    ou_theta: float = setting(
        0.15,
        "Share by which the noise returns to 0 in a step (Lillicrap et al. 2016)",
        above=0,
        at_most=1,
        acts=(ON_CONTINUOUS, with_setting("exploration", "ornstein_uhlenbeck")),
    )
    exploration_epsilon: float = setting(
        0.1,
        "Share of choices that are uniformly random while exploring",
        at_least=0,
        at_most=1,
        acts=ON_DISCRETE,
    )
    gumbel_temperature: float = setting(
        1.0,
        "Temperature of the softmax that gives choices their gradient (Jang et al. 2017)",
        at_least=1e-3,
        at_most=1e3,
        acts=ON_DISCRETE,
    )
    logit_penalty: float = setting(
        1e-3,
        "Weight c of c mean (l - mean l)² of choices' logits (Lowe et al. 2017, code)",
        at_least=0,
        acts=ON_DISCRETE,
    )
    action_masks: bool = setting(
        True,
        'Obey info["action_mask"], which choices are valid (docs/spaces.md)',
        acts=ON_DISCRETE,
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
        check_acting(self)
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
        check_acting(self, None, observations, actions)

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
