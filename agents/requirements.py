"""Choices of settings, and the requirements that several settings share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eagerly.buffers import STRATEGIES
from eagerly.settings import Requirement, when
from eagerly.spaces.description import GOAL_ENTRIES, inner_spaces

# Names of TensorFlow components, which declarations do not import.
MEMORIES = ("lstm", "gru", "attention")
NO_MEMORY = "none"
WITH_MEMORY = when("memory", *MEMORIES)
_WITHOUT_MEMORY = when("memory", NO_MEMORY)
CONSTANT = "constant"
SCHEDULES = (CONSTANT, "linear", "cosine")
WITH_SCHEDULE = when("schedule", *SCHEDULES[1:])
UNIFORM = "uniform"
PRIORITIZED = "prioritized"
LAP = "lap"
SAMPLINGS = (UNIFORM, PRIORITIZED, LAP)
BY_PRIORITY = when("sampling", PRIORITIZED, LAP)
NO_HINDSIGHT = "none"
HINDSIGHTS = (NO_HINDSIGHT, *STRATEGIES)
NOT_QUANTIZED = "none"
QUANTIZED = "int8"
WITH_QUANTIZATION = when("quantize", QUANTIZED)
MODES = ("eager", "graph", "xla")
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


def _unless_replaced(*networks: str) -> Requirement:
    """Requires that at least one of these networks is not a custom model."""

    def unmet(config: Any, spaces: Any) -> str | None:
        replaced = config.models or all(getattr(config, network) for network in networks)
        return "your own, which your factory makes: leave it out" if replaced else None

    return Requirement("for networks that are not your own", unmet)


def _unless_models(needed: Requirement) -> Requirement:
    """Requires this, unless one factory makes all networks."""
    return Requirement(
        f"for your own `models`, or {needed.text}",
        lambda config, spaces: None if config.models else needed.unmet(config, spaces),
    )


def _on_observations(what: str, there: Callable[[Any], Any]) -> Requirement:
    """Requires observations for which `there` returns a true value."""

    def unmet(config: Any, spaces: Any) -> Any:
        # Messages show the observations without ignored entries.
        return None if spaces is None or there(spaces[0]) else spaces[0].kept_space

    return Requirement(f"for {what}", unmet)


def _on_actions(what: str, there: Callable[[Any], Any]) -> Requirement:
    """Requires actions for which `there` returns a true value."""
    return Requirement(
        f"for {what}",
        lambda _, spaces: None if spaces is None or there(spaces[1]) else spaces[1].space,
    )


SHAPES_NETWORKS = _unless_replaced("actor", "critic")
SHAPES_CRITICS = _unless_replaced("critic")
ON_DISCRETE = _on_actions("discrete actions", lambda actions: actions.choices)
ON_CONTINUOUS = _on_actions("continuous actions", lambda actions: actions.continuous)
ON_IMAGES = _on_observations("images", lambda observations: observations.images)
ON_VECTORS = _on_observations("vectors", lambda observations: observations.scalable.any())
# Replay buffers for windows and images keep whole episodes and sample steps from these.
ON_ROWS = (
    _WITHOUT_MEMORY,
    _on_observations("observations without images", lambda observations: not observations.images),
)
ON_GOALS = _on_observations(
    f"observations with the entries {', '.join(GOAL_ENTRIES)}",
    lambda observations: {entry.path for entry in observations.entries} >= set(GOAL_ENTRIES),
)
IN_ENTRIES = _on_observations(
    "entries of a Dict or Tuple",
    lambda observations: inner_spaces(observations.space) is not None,
)
_ENCODED = _on_observations(
    "images and entries of a Dict or Tuple", lambda observations: not observations.is_one_vector
)
IN_ENCODERS = (_WITHOUT_MEMORY, _ENCODED)
ON_SHARED = (
    Requirement(
        "for what actor and critics share, such as your own `models`",
        lambda config, _: (
            (config.actor or config.critic or None) and "an actor or critic of your own"
        ),
    ),
    *map(_unless_models, IN_ENCODERS),
)
QUANTIZES = (
    _unless_replaced("actor"),
    _WITHOUT_MEMORY,
    when("activation", "relu"),
    when("layer_norm", False),
    when("precision", "float32"),
    _on_observations("one vector", lambda observations: observations.is_one_vector),
)
