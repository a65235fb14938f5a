"""The settings shared by all agents, by group, and the conditions under which they take effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eagerly.buffers import STRATEGIES
from eagerly.policies.exploration import EXPLORATIONS
from eagerly.policies.operations import ACTIVATIONS
from eagerly.settings import Group, Requirement, Settings, setting, when
from eagerly.spaces.description import GOAL_ENTRIES, inner_spaces

# Names of TensorFlow components: settings are declared without importing TensorFlow.
MEMORIES = ("lstm", "gru", "attention")
NO_MEMORY = "none"
CONSTANT = "constant"
SCHEDULES = (CONSTANT, "linear", "cosine")
UNIFORM = "uniform"
PRIORITIZED = "prioritized"
LAP = "lap"
SAMPLINGS = (UNIFORM, PRIORITIZED, LAP)
NO_HINDSIGHT = "none"
HINDSIGHTS = (NO_HINDSIGHT, *STRATEGIES)
NOT_QUANTIZED = "none"
QUANTIZED = "int8"
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
    """Requires that at least one of `networks` is not a custom model."""

    def unmet(config: Any, spaces: Any) -> str | None:
        replaced = config.models or all(getattr(config, network) for network in networks)
        return "your own, which your factory makes: leave it out" if replaced else None

    return Requirement("for networks that are not your own", unmet)


def _unless_models(needed: Requirement) -> Requirement:
    """Requires `needed`, unless one factory creates all networks."""
    return Requirement(
        f"for your own `models`, or {needed.text}",
        lambda config, spaces: None if config.models else needed.unmet(config, spaces),
    )


def _for_observations(what: str, there: Callable[[Any], Any]) -> Requirement:
    """Requires observations for which `there` returns a true value."""

    def unmet(config: Any, spaces: Any) -> Any:
        # Messages omit ignored entries.
        return None if spaces is None or there(spaces[0]) else spaces[0].kept_space

    return Requirement(f"for {what}", unmet)


def _for_actions(what: str, there: Callable[[Any], Any]) -> Requirement:
    """Requires actions for which `there` returns a true value."""

    def unmet(config: Any, spaces: Any) -> Any:
        return None if spaces is None or there(spaces[1]) else spaces[1].space

    return Requirement(f"for {what}", unmet)


_WITH_MEMORY = when("memory", *MEMORIES)
_WITHOUT_MEMORY = when("memory", NO_MEMORY)
_WITH_SCHEDULE = when("schedule", *SCHEDULES[1:])
BY_PRIORITY = when("sampling", PRIORITIZED, LAP)
SHAPES_NETWORKS = _unless_replaced("actor", "critic")
SHAPES_CRITICS = _unless_replaced("critic")
_ON_DISCRETE = _for_actions("discrete actions", lambda actions: actions.choices)
ON_CONTINUOUS = _for_actions("continuous actions", lambda actions: actions.continuous)
_ON_IMAGES = _for_observations("images", lambda observations: observations.images)
_ON_VECTORS = _for_observations("vectors", lambda observations: observations.scalable.any())
# Replay buffers for windows and images store whole episodes and sample steps from them.
_ON_ROWS = (
    _WITHOUT_MEMORY,
    _for_observations("observations without images", lambda observations: not observations.images),
)
_ON_GOALS = _for_observations(
    f"observations with the entries {', '.join(GOAL_ENTRIES)}",
    lambda observations: {entry.path for entry in observations.entries} >= set(GOAL_ENTRIES),
)
_IN_ENTRIES = _for_observations(
    "entries of a Dict or Tuple",
    lambda observations: inner_spaces(observations.space) is not None,
)
_ENCODED = _for_observations(
    "images and entries of a Dict or Tuple", lambda observations: not observations.is_one_vector
)
_IN_ENCODERS = (_WITHOUT_MEMORY, _ENCODED)
_ON_SHARED = (
    Requirement(
        "for what actor and critics share, such as your own `models`",
        lambda config, _: (
            (config.actor or config.critic or None) and "an actor or critic of your own"
        ),
    ),
    *map(_unless_models, _IN_ENCODERS),
)
_QUANTIZES = (
    _unless_replaced("actor"),
    _WITHOUT_MEMORY,
    when("activation", "relu"),
    when("layer_norm", False),
    when("precision", "float32"),
    _for_observations("one vector", lambda observations: observations.is_one_vector),
)


def _check_models(config: AgentSettings) -> None:
    own = [name for name in ("actor", "critic", "models") if getattr(config, name)]
    if "models" in own and len(own) > 1:
        raise ValueError(f"models makes actor and critics: leave {own[0]} out")
    if own and config.memory != NO_MEMORY:
        raise ValueError(f"memory {config.memory} is not for models of your own: leave it out")


def _check_optimizer(config: AgentSettings) -> None:
    if config.schedule != CONSTANT and not config.schedule_steps:
        raise ValueError(
            f"schedule {config.schedule} needs schedule_steps, the updates until learning rates "
            "have fallen"
        )
    if config.weight_decay and config.shared_gradient == "both":
        raise ValueError(
            "weight_decay would act twice on what actor and critics share, once with each of "
            "them: set shared_gradient to critic or actor"
        )


def _check_memory(config: AgentSettings) -> None:
    if config.memory != NO_MEMORY and config.burn_in > config.sequence_length - 2:
        raise ValueError(
            f"burn_in must leave 2 steps of sequence_length, {config.sequence_length}, to learn "
            f"from; got {config.burn_in}"
        )
    if config.memory == "attention" and config.memory_units % config.attention_heads:
        raise ValueError(
            f"attention_heads must be a divisor of memory_units, {config.memory_units}; got "
            f"{config.attention_heads}"
        )


LEARNING = Group("Learning")
NETWORKS = Group("Networks")
OPTIMIZER = Group("Optimizers", _check_optimizer)
REWARDS = Group("Rewards")
MODELS = Group("Custom networks", _check_models)
MEMORY = Group("Recurrent networks", _check_memory)
REPLAY = Group("Replay")
EXPLORATION = Group("Exploration")
DISCRETE = Group("Discrete actions")
QUANTIZATION = Group("Quantization")
_SHAPES: dict[str, Any] = {"group": NETWORKS, "built": True, "requires": SHAPES_NETWORKS}
_FACTORY: dict[str, Any] = {"group": MODELS, "names": "module:factory", "longest": 500}


class AgentSettings(Settings):
    """Settings shared by all agents. "authors" refers to the public code of the TD3 authors."""

    discount: float = setting(
        0.99, "Discount per step, gamma (paper)", at_least=0, at_most=1, group=LEARNING
    )
    batch_size: int = setting(
        256,
        "Per update (authors)",
        unit="transitions",
        at_least=1,
        at_most=2**20,
        requires=when("memory", NO_MEMORY),
        group=LEARNING,
    )
    actor_learning_rate: float = setting(
        3e-4, "Adam's step size, actor (authors)", above=0, group=LEARNING, built=True
    )
    critic_learning_rate: float = setting(
        3e-4, "Adam's step size, critics (authors)", above=0, group=LEARNING, built=True
    )
    tau: float = setting(
        0.005, "Step of targets to networks (authors)", above=0, at_most=1, group=LEARNING
    )
    mode: str = setting(
        "xla", "How the train body runs; eager is for debugging", choices=MODES, group=LEARNING
    )
    precision: str = setting("float32", "Of the networks", choices=PRECISIONS, group=LEARNING)

    hidden_sizes: tuple[int, ...] = setting(
        (256, 256), "Hidden units (authors)", at_least=1, at_most=2**14, longest=64, **_SHAPES
    )
    activation: str = setting(
        "relu", "Hidden activation (authors)", choices=tuple(ACTIVATIONS), **_SHAPES
    )
    layer_norm: bool = setting(False, "Normalize hidden layers before their activation", **_SHAPES)
    normalize_observations: bool = setting(
        False,
        "Scale observations by their running mean and deviation",
        requires=_ON_VECTORS,
        group=NETWORKS,
        built=True,
    )
    initializer: str = setting(
        "glorot_uniform", "Initial weights (Keras)", choices=INITIALIZERS, **_SHAPES
    )
    ignore_entries: str = setting(
        "",
        "Entries of observations that are left out, such as texts: mission,robot/camera "
        "(docs/spaces.md)",
        unit="names",
        longest=10_000,
        requires=_IN_ENTRIES,
        group=NETWORKS,
    )
    encoder_units: int = setting(
        64,
        "Features of each entry of an observation, of images among them (docs/spaces.md)",
        at_least=1,
        at_most=2**14,
        requires=(SHAPES_NETWORKS, *_IN_ENCODERS),
        group=NETWORKS,
        built=True,
    )
    random_shift: int = setting(
        0,
        "How far images are shifted at random in updates (Kostrikov et al. 2021: 4)",
        unit="pixels",
        at_least=0,
        at_most=64,
        requires=_ON_IMAGES,
        group=NETWORKS,
    )

    adam_epsilon: float = setting(
        1e-8, "Adam's epsilon, where Keras adds it (docs/td3.md)", above=0, group=OPTIMIZER
    )
    clip_gradients: float = setting(
        0.0,
        "Largest norm of a gradient, over all weights of the actor or of the critics; 0: no "
        "clipping",
        at_least=0,
        group=OPTIMIZER,
    )
    weight_decay: float = setting(
        0.0,
        "Decoupled weight decay, multiplied by the learning rate (AdamW, Loshchilov and Hutter "
        "2019)",
        at_least=0,
        group=OPTIMIZER,
    )
    schedule: str = setting(
        CONSTANT,
        "How learning rates fall over schedule_steps",
        choices=SCHEDULES,
        immutable=True,
        group=OPTIMIZER,
    )
    schedule_steps: int = setting(
        0,
        "Updates until learning rates have fallen to schedule_end; one is made per step after the "
        "warm-up unless replay_ratio says otherwise",
        unit="updates",
        at_least=0,
        at_most=10**12,
        requires=_WITH_SCHEDULE,
        group=OPTIMIZER,
    )
    schedule_end: float = setting(
        0.0,
        "Share of the learning rates that is left then, for as long as the run goes on",
        at_least=0,
        at_most=1,
        requires=_WITH_SCHEDULE,
        group=OPTIMIZER,
    )

    normalize_rewards: bool = setting(
        False,
        "Divide rewards by the running deviation of the discounted return",
        immutable=True,
        group=REWARDS,
    )
    reward_scale: float = setting(
        1.0, "Multiply rewards, after they are normalized", above=0, group=REWARDS
    )

    actor: str | Callable[..., Any] = setting(
        "",
        "An actor of your own: module:factory, in Python also the factory (docs/own-models.md)",
        **_FACTORY,
    )
    critic: str | Callable[..., Any] = setting(
        "", "Critics of your own, in the same way", **_FACTORY
    )
    models: str | Callable[..., Any] = setting(
        "", "Both of your own, from one factory, so that they can share what they like", **_FACTORY
    )
    shared_gradient: str = setting(
        "critic",
        "Whose loss moves variables that actor and critics share",
        choices=("critic", "actor", "both"),
        requires=_ON_SHARED,
        group=MODELS,
    )

    memory: str = setting(
        NO_MEMORY,
        "What actor and critics remember of an episode with (docs/memory.md)",
        choices=(NO_MEMORY, *MEMORIES),
        group=MEMORY,
        built=True,
    )
    memory_units: int = setting(
        64,
        "Length of what is remembered",
        at_least=1,
        at_most=2**14,
        requires=_WITH_MEMORY,
        group=MEMORY,
        built=True,
    )
    attention_heads: int = setting(
        4,
        "Heads of attention, a divisor of memory_units",
        at_least=1,
        at_most=2**14,
        requires=when("memory", "attention"),
        group=MEMORY,
        built=True,
    )
    sequence_length: int = setting(
        32,
        "Length of the windows that are learned from, and how far attention sees",
        unit="steps",
        at_least=2,
        at_most=2**12,
        requires=_WITH_MEMORY,
        group=MEMORY,
    )
    burn_in: int = setting(
        0,
        "First steps of a window that only warm the memory (Kapturowski et al. 2019)",
        unit="steps",
        at_least=0,
        requires=_WITH_MEMORY,
        group=MEMORY,
    )
    sequences_per_update: int = setting(
        32,
        "In place of batch_size",
        unit="windows",
        at_least=1,
        at_most=2**16,
        requires=_WITH_MEMORY,
        group=MEMORY,
    )

    n_step: int = setting(
        1,
        "Rewards that a transition sums before it bootstraps from a value, n (docs/replay.md)",
        unit="steps",
        at_least=1,
        at_most=1000,
        immutable=True,
        requires=_ON_ROWS,
        group=REPLAY,
    )
    sampling: str = setting(
        UNIFORM,
        "How transitions are drawn: uniformly, or more often where their temporal-difference error "
        "was large (docs/replay.md)",
        choices=SAMPLINGS,
        immutable=True,
        requires=_ON_ROWS,
        group=REPLAY,
    )
    prioritized_exponent: float = setting(
        0.6,
        "Exponent of priorities, alpha; 0 draws uniformly (Schaul et al. 2016)",
        at_least=0,
        at_most=10,
        immutable=True,
        requires=when("sampling", PRIORITIZED),
        group=REPLAY,
    )
    prioritized_correction: float = setting(
        0.4,
        "Initial exponent of importance weights, beta (Schaul et al. 2016)",
        at_least=0,
        at_most=1,
        requires=when("sampling", PRIORITIZED),
        group=REPLAY,
    )
    prioritized_correction_updates: int = setting(
        1_000_000,
        "Updates in which the exponent of importance weights rises to 1",
        unit="updates",
        at_least=1,
        at_most=10**12,
        requires=when("sampling", PRIORITIZED),
        group=REPLAY,
    )
    lap_exponent: float = setting(
        0.4,
        "Exponent of priorities, alpha; 0 draws uniformly (Fujimoto et al. 2020)",
        at_least=0,
        at_most=10,
        immutable=True,
        requires=when("sampling", LAP),
        group=REPLAY,
    )
    hindsight: str = setting(
        NO_HINDSIGHT,
        "Also learn from each step with goals that its episode achieved: the final one, some from "
        "that step on, or some of the whole episode (docs/replay.md)",
        choices=HINDSIGHTS,
        immutable=True,
        requires=(*_ON_ROWS, _ON_GOALS),
        group=REPLAY,
    )
    hindsight_goals: int = setting(
        4,
        "Achieved goals that each step is stored with, too, k (Andrychowicz et al. 2017)",
        unit="goals",
        at_least=1,
        at_most=1000,
        immutable=True,
        requires=when("hindsight", *HINDSIGHTS[2:]),
        group=REPLAY,
    )

    exploration: str = setting(
        "gaussian",
        "Exploration noise: independent, or correlated in time",
        choices=EXPLORATIONS,
        requires=ON_CONTINUOUS,
        group=EXPLORATION,
    )
    exploration_noise: float = setting(
        0.1,
        "Deviation of exploration noise per step (authors)",
        unit="of [-1, 1]",
        at_least=0,
        requires=ON_CONTINUOUS,
        group=EXPLORATION,
    )
    ou_theta: float = setting(
        0.15,
        "Share by which the noise returns to 0 in a step (Lillicrap et al. 2016)",
        above=0,
        at_most=1,
        requires=(ON_CONTINUOUS, when("exploration", "ornstein_uhlenbeck")),
        group=EXPLORATION,
    )
    exploration_epsilon: float = setting(
        0.1,
        "Share of choices that are uniformly random while exploring",
        at_least=0,
        at_most=1,
        requires=_ON_DISCRETE,
        group=EXPLORATION,
    )

    gumbel_temperature: float = setting(
        1.0,
        "Temperature of the softmax that gives choices their gradient (Jang et al. 2017)",
        at_least=1e-3,
        at_most=1e3,
        requires=_ON_DISCRETE,
        group=DISCRETE,
    )
    logit_penalty: float = setting(
        1e-3,
        "Weight c of c mean (l - mean l)² of choices' logits (Lowe et al. 2017, code)",
        at_least=0,
        requires=_ON_DISCRETE,
        group=DISCRETE,
    )
    action_masks: bool = setting(
        True,
        'Obey info["action_mask"], which choices are valid (docs/spaces.md)',
        requires=_ON_DISCRETE,
        group=DISCRETE,
    )

    quantize: str = setting(
        NOT_QUANTIZED,
        "Train the actor with fake quantization, so that it can be exported in 8-bit integers "
        "(docs/quantization.md)",
        choices=(NOT_QUANTIZED, QUANTIZED),
        immutable=True,
        requires=_QUANTIZES,
        group=QUANTIZATION,
    )
    quantize_freeze_steps: int = setting(
        0,
        "Updates after which the ranges of activations stay as they are; 0: they never do",
        unit="updates",
        at_least=0,
        at_most=10**12,
        requires=when("quantize", QUANTIZED),
        group=QUANTIZATION,
    )
