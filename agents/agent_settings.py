"""The settings shared by all agents, by group, and the conditions under which they take effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eagerly.buffers import STRATEGIES
from eagerly.policies.exploration import EXPLORATIONS
from eagerly.policies.operations import ACTIVATIONS
from eagerly.settings import Group, Requirement, Settings, setting, when
from eagerly.spaces.description import GOAL_ENTRIES, inner_spaces

# Components are listed by name, so that settings can be declared without importing TensorFlow.
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
MIXED = "mixed_bfloat16"
PRECISIONS = ("float32", "float64", MIXED)


def _unless_replaced(*networks: str) -> Requirement:
    """Requires that at least one of `networks` is not a custom model."""

    def unmet(config: Any, spaces: Any) -> str | None:
        replaced = config.models or all(getattr(config, network) for network in networks)
        return "custom networks: remove the setting" if replaced else None

    return Requirement("for built-in networks", unmet)


def _unless_models(needed: Requirement) -> Requirement:
    """Requires `needed`, unless the factory `models` creates all networks."""
    return Requirement(
        f"with custom `models`, or {needed.text}",
        lambda config, spaces: None if config.models else needed.unmet(config, spaces),
    )


def _for_observations(what: str, there: Callable[[Any], Any]) -> Requirement:
    """Requires observations for which `there` returns a true value."""

    def unmet(config: Any, spaces: Any) -> Any:
        # The returned space appears in the error message, without ignored entries.
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
# Custom networks receive and return float32 with mixed precision, as with float32.
_IN_PRECISION = Requirement(
    "with float64, or for built-in networks",
    lambda config, spaces: (
        SHAPES_NETWORKS.unmet(config, spaces) if config.precision == MIXED else None
    ),
)
_ON_DISCRETE = _for_actions("discrete actions", lambda actions: actions.choices)
ON_CONTINUOUS = _for_actions("continuous actions", lambda actions: actions.continuous)
_ON_IMAGES = _for_observations("image observations", lambda observations: observations.images)
_ON_VECTORS = _for_observations(
    "vector observations", lambda observations: observations.scalable.any()
)
# Requires a buffer of complete transitions. Buffers for windows and images store episodes instead.
_ON_ROWS = (
    _WITHOUT_MEMORY,
    _for_observations("observations without images", lambda observations: not observations.images),
)
_ON_GOALS = _for_observations(
    f"dictionary observations in which {' and '.join(GOAL_ENTRIES)} are arrays",
    lambda observations: {entry.path for entry in observations.entries} >= set(GOAL_ENTRIES),
)
_IN_ENTRIES = _for_observations(
    "Dict or Tuple observations",
    lambda observations: inner_spaces(observations.space) is not None,
)
_ENCODED = _for_observations(
    "image, Dict or Tuple observations", lambda observations: not observations.is_one_vector
)
_IN_ENCODERS = (_WITHOUT_MEMORY, _ENCODED)
_ON_SHARED = (
    Requirement(
        "if actor and critics share variables, as with custom `models`",
        lambda config, _: (config.actor or config.critic or None) and "a custom actor or critic",
    ),
    Requirement(
        "without --critic-entries",
        lambda config, _: config.critic_entries or None,
        "critic_entries",
    ),
    *map(_unless_models, _IN_ENCODERS),
)
_QUANTIZES = (
    _unless_replaced("actor"),
    _WITHOUT_MEMORY,
    when("activation", "relu"),
    when("layer_norm", False),
    when("precision", "float32"),
    _for_observations(
        "single-vector observations", lambda observations: observations.actor.is_one_vector
    ),
)


def _check_models(config: AgentSettings) -> None:
    custom = [name for name in ("actor", "critic", "models") if getattr(config, name)]
    if "models" in custom and len(custom) > 1:
        raise ValueError(f"models already creates actor and critics: remove {custom[0]}")
    if "models" in custom and config.critic_entries:
        raise ValueError(
            "critic_entries requires separate factories: models creates actor and critics from the "
            "same observations, so set actor and critic instead"
        )
    if custom and config.memory != NO_MEMORY:
        raise ValueError(f"memory must be none with custom networks; got {config.memory}")


def _check_optimizer(config: AgentSettings) -> None:
    if config.schedule != CONSTANT and not config.schedule_steps:
        raise ValueError(
            f"schedule {config.schedule} requires schedule_steps, the number of updates until "
            "learning rates reach schedule_end"
        )
    if config.weight_decay and config.shared_gradient == "both":
        raise ValueError(
            "weight_decay would be applied twice to variables shared by actor and critics: set "
            "shared_gradient to critic or actor"
        )


def _check_memory(config: AgentSettings) -> None:
    if config.memory != NO_MEMORY and config.burn_in > config.sequence_length - 2:
        raise ValueError(
            "burn_in must leave at least 2 steps of sequence_length, "
            f"{config.sequence_length}, for learning; got {config.burn_in}"
        )
    if config.memory == "attention" and config.memory_units % config.attention_heads:
        raise ValueError(
            f"attention_heads must divide memory_units, {config.memory_units}; got "
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
    """Settings shared by all agents. "authors' code" is the public code of the TD3 authors."""

    discount: float = setting(
        0.99,
        "Discount factor per step, gamma (paper)",
        at_least=0,
        at_most=1,
        basic=True,
        group=LEARNING,
    )
    batch_size: int = setting(
        256,
        "Transitions per gradient update (authors' code)",
        unit="transitions",
        at_least=1,
        at_most=2**20,
        requires=when("memory", NO_MEMORY),
        basic=True,
        group=LEARNING,
    )
    actor_learning_rate: float = setting(
        3e-4,
        "Adam learning rate of the actor (authors' code)",
        above=0,
        basic=True,
        group=LEARNING,
        built=True,
    )
    critic_learning_rate: float = setting(
        3e-4,
        "Adam learning rate of the critics (authors' code)",
        above=0,
        basic=True,
        group=LEARNING,
        built=True,
    )
    tau: float = setting(
        0.005,
        "Fraction by which target networks move toward the trained networks per target update "
        "(authors' code)",
        above=0,
        at_most=1,
        group=LEARNING,
    )
    mode: str = setting(
        "xla",
        "Execution mode of updates; eager is for debugging",
        choices=MODES,
        comparable=True,
        basic=True,
        group=LEARNING,
    )
    replicas: int = setting(
        1,
        "Devices that run each update together, each with an equal part of the batch "
        "(documentation: Scaling)",
        unit="devices",
        at_least=1,
        at_most=64,
        comparable=True,
        requires=when("mode", "graph", "eager"),
        group=LEARNING,
    )
    precision: str = setting(
        "float32",
        "Floating-point precision of the networks",
        choices=PRECISIONS,
        requires=_IN_PRECISION,
        group=LEARNING,
        built=True,
    )

    hidden_sizes: tuple[int, ...] = setting(
        (256, 256),
        "Units of each hidden layer (authors' code)",
        at_least=1,
        at_most=2**14,
        longest=64,
        basic=True,
        **_SHAPES,
    )
    activation: str = setting(
        "relu", "Activation of hidden layers (authors' code)", choices=tuple(ACTIVATIONS), **_SHAPES
    )
    layer_norm: bool = setting(
        False, "Apply layer normalization before each hidden activation", **_SHAPES
    )
    normalize_observations: bool = setting(
        False,
        "Normalize observations by their running mean and standard deviation",
        requires=_ON_VECTORS,
        basic=True,
        group=NETWORKS,
        built=True,
    )
    normalization_floor: float = setting(
        0.0,
        "Smallest divisor of normalized observations; with 1, small dimensions are not enlarged",
        at_least=0,
        at_most=10**6,
        requires=when("normalize_observations"),
        group=NETWORKS,
    )
    initializer: str = setting(
        "glorot_uniform", "Weight initializer (Keras)", choices=INITIALIZERS, **_SHAPES
    )
    ignore_entries: str = setting(
        "",
        "Comma-separated observation entries to ignore, such as mission,robot/camera "
        "(documentation: Images, discrete actions and action masks)",
        unit="names",
        longest=10_000,
        requires=_IN_ENTRIES,
        group=NETWORKS,
    )
    critic_entries: str = setting(
        "",
        "Comma-separated observation entries that only critics see, in the form of ignore_entries "
        "(Pinto et al. 2018)",
        unit="names",
        longest=10_000,
        requires=_IN_ENTRIES,
        group=NETWORKS,
        immutable=True,
        built=True,
    )
    encoder_units: int = setting(
        64,
        "Encoder features per observation entry, including images "
        "(documentation: Images, discrete actions and action masks)",
        at_least=1,
        at_most=2**14,
        requires=(SHAPES_NETWORKS, *_IN_ENCODERS),
        group=NETWORKS,
        built=True,
    )
    random_shift: int = setting(
        0,
        "Maximum random shift of images in updates (4 in Kostrikov et al. 2021)",
        unit="pixels",
        at_least=0,
        at_most=64,
        requires=_ON_IMAGES,
        group=NETWORKS,
    )

    adam_epsilon: float = setting(
        1e-8, "Adam's epsilon, added as in Keras (documentation: TD3)", above=0, group=OPTIMIZER
    )
    clip_gradients: float = setting(
        0.0,
        "Maximum gradient norm over all weights of the actor or of the critics; 0: no clipping",
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
        "Decay of learning rates over schedule_steps",
        choices=SCHEDULES,
        immutable=True,
        group=OPTIMIZER,
    )
    schedule_steps: int = setting(
        0,
        "Updates until learning rates reach schedule_end; by default (replay_ratio) a run makes "
        "one update per environment step after the warm-up",
        unit="updates",
        at_least=0,
        at_most=10**12,
        requires=_WITH_SCHEDULE,
        group=OPTIMIZER,
    )
    schedule_end: float = setting(
        0.0,
        "Final learning rates as a fraction of the initial ones, kept after schedule_steps",
        at_least=0,
        at_most=1,
        requires=_WITH_SCHEDULE,
        group=OPTIMIZER,
    )

    normalize_rewards: bool = setting(
        False,
        "Divide rewards by the running standard deviation of the discounted return",
        immutable=True,
        group=REWARDS,
    )
    reward_scale: float = setting(
        1.0, "Factor applied to rewards, after normalization", above=0, group=REWARDS
    )

    actor: str | Callable[..., Any] = setting(
        "",
        "Custom actor: module:factory, or the factory itself in Python "
        "(documentation: Custom networks)",
        **_FACTORY,
    )
    critic: str | Callable[..., Any] = setting(
        "", "Custom critics, given in the same form as actor", **_FACTORY
    )
    models: str | Callable[..., Any] = setting(
        "", "Custom actor and critics from one factory, which may share variables", **_FACTORY
    )
    shared_gradient: str = setting(
        "critic",
        "Loss that trains variables shared by actor and critics",
        choices=("critic", "actor", "both"),
        requires=_ON_SHARED,
        group=MODELS,
    )

    memory: str = setting(
        NO_MEMORY,
        "Recurrent core of actor and critics (documentation: Recurrent agents)",
        choices=(NO_MEMORY, *MEMORIES),
        basic=True,
        group=MEMORY,
        built=True,
    )
    memory_units: int = setting(
        64,
        "Units of the recurrent core",
        at_least=1,
        at_most=2**14,
        requires=_WITH_MEMORY,
        group=MEMORY,
        built=True,
    )
    attention_heads: int = setting(
        4,
        "Number of attention heads; must divide memory_units",
        at_least=1,
        at_most=2**14,
        requires=when("memory", "attention"),
        group=MEMORY,
        built=True,
    )
    sequence_length: int = setting(
        32,
        "Length of training windows, and context length of attention",
        unit="steps",
        at_least=2,
        at_most=2**12,
        requires=_WITH_MEMORY,
        group=MEMORY,
    )
    burn_in: int = setting(
        0,
        "Initial window steps that only warm up the recurrent state (Kapturowski et al. 2019)",
        unit="steps",
        at_least=0,
        requires=_WITH_MEMORY,
        group=MEMORY,
    )
    sequences_per_update: int = setting(
        32,
        "Windows per gradient update, in place of batch_size",
        unit="windows",
        at_least=1,
        at_most=2**16,
        requires=_WITH_MEMORY,
        group=MEMORY,
    )

    n_step: int = setting(
        1,
        "Rewards summed per transition before bootstrapping, n "
        "(documentation: Choose a replay: n-step, PER, HER)",
        unit="steps",
        at_least=1,
        at_most=1000,
        immutable=True,
        requires=_ON_ROWS,
        basic=True,
        group=REPLAY,
    )
    sampling: str = setting(
        UNIFORM,
        "Sampling of transitions: uniform, or prioritized by temporal-difference error "
        "(documentation: Choose a replay: n-step, PER, HER)",
        choices=SAMPLINGS,
        immutable=True,
        requires=_ON_ROWS,
        group=REPLAY,
    )
    prioritized_exponent: float = setting(
        0.6,
        "Priority exponent, alpha; 0: uniform sampling (Schaul et al. 2016)",
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
        "Updates until the exponent of importance weights reaches 1",
        unit="updates",
        at_least=1,
        at_most=10**12,
        requires=when("sampling", PRIORITIZED),
        group=REPLAY,
    )
    lap_exponent: float = setting(
        0.4,
        "Priority exponent, alpha; 0: uniform sampling (Fujimoto et al. 2020)",
        at_least=0,
        at_most=10,
        immutable=True,
        requires=when("sampling", LAP),
        group=REPLAY,
    )
    hindsight: str = setting(
        NO_HINDSIGHT,
        "Hindsight replay with goals achieved in the same episode: the final one, random later "
        "ones, or random ones of the whole episode "
        "(documentation: Choose a replay: n-step, PER, HER)",
        choices=HINDSIGHTS,
        immutable=True,
        requires=(*_ON_ROWS, _ON_GOALS),
        group=REPLAY,
    )
    hindsight_goals: int = setting(
        4,
        "Hindsight goals stored per step, k (Andrychowicz et al. 2017)",
        unit="goals",
        at_least=1,
        at_most=1000,
        immutable=True,
        requires=when("hindsight", *HINDSIGHTS[2:]),
        group=REPLAY,
    )

    exploration: str = setting(
        "gaussian",
        "Exploration noise: independent, temporally correlated, or held for 1 to 16 steps",
        choices=EXPLORATIONS,
        requires=ON_CONTINUOUS,
        group=EXPLORATION,
    )
    exploration_noise: float = setting(
        0.1,
        "Standard deviation of exploration noise per step (authors' code)",
        unit="relative to actions in [-1, 1]",
        at_least=0,
        requires=ON_CONTINUOUS,
        basic=True,
        group=EXPLORATION,
    )
    ou_theta: float = setting(
        0.15,
        "Fraction by which Ornstein-Uhlenbeck noise reverts to 0 per step (Lillicrap et al. 2016)",
        above=0,
        at_most=1,
        requires=(ON_CONTINUOUS, when("exploration", "ornstein_uhlenbeck")),
        group=EXPLORATION,
    )
    exploration_epsilon: float = setting(
        0.1,
        "Probability of a uniformly random choice during exploration",
        at_least=0,
        at_most=1,
        requires=_ON_DISCRETE,
        group=EXPLORATION,
    )

    gumbel_temperature: float = setting(
        1.0,
        "Softmax temperature for the gradient of discrete choices (Jang et al. 2017)",
        at_least=1e-3,
        at_most=1000,
        requires=_ON_DISCRETE,
        group=DISCRETE,
    )
    logit_penalty: float = setting(
        1e-3,
        "Weight c of the penalty c mean (l - mean l)² on the logits l of choices (code of Lowe et "
        "al. 2017)",
        at_least=0,
        requires=_ON_DISCRETE,
        group=DISCRETE,
    )
    action_masks: bool = setting(
        True,
        'Exclude invalid choices according to info["action_mask"] '
        "(documentation: Images, discrete actions and action masks)",
        requires=_ON_DISCRETE,
        group=DISCRETE,
    )

    quantize: str = setting(
        NOT_QUANTIZED,
        "Quantization-aware training of the actor, for export in 8-bit integers "
        "(documentation: Quantization)",
        choices=(NOT_QUANTIZED, QUANTIZED),
        immutable=True,
        requires=_QUANTIZES,
        group=QUANTIZATION,
    )
    quantize_freeze_steps: int = setting(
        0,
        "Updates after which activation ranges are frozen; 0: never",
        unit="updates",
        at_least=0,
        at_most=10**12,
        requires=when("quantize", QUANTIZED),
        group=QUANTIZATION,
    )
