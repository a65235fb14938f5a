"""Settings of TD7."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from eagerly.agents.agent_settings import LAP
from eagerly.agents.config import AgentConfig
from eagerly.policies.architecture import ActorArchitecture, StateEmbedding
from eagerly.policies.heads import ActionHead
from eagerly.policies.operations import ACTIVATIONS
from eagerly.settings import Group, setting
from eagerly.spaces import Actions, Observations

# For runs of about 100,000 steps, at about TD3's computational cost (documentation: TD7).
_EFFICIENT: dict[str, Any] = {
    "batch_size": 64,
    "embedding_size": 128,
    "encoder_hidden_sizes": (128, 128),
    "n_step": 2,
    "warmup_steps": 1000,
    "exploration": "held",
    "exploration_noise": 0.2,
    "policy_checkpoints": False,
}


def _check_layers(config: TD7Config) -> None:
    if not config.hidden_sizes:
        raise ValueError("hidden_sizes must not be empty; got ()")


_TD7 = Group("TD7", _check_layers)


class TD7Config(AgentConfig):
    """Settings of TD7.

    "authors' code" is the public code of Fujimoto et al. 2023, "paper" is the article itself.
    """

    PRESETS = MappingProxyType({"efficient": _EFFICIENT})
    RUN_DEFAULTS = MappingProxyType({"warmup_steps": 25_000, "policy_checkpoints": True})
    FROM_ENVIRONMENTS = frozenset({"discount", "warmup_steps"})
    DEFAULTS = MappingProxyType({"initializer": "torch_linear", "sampling": LAP})
    WITHOUT = frozenset(
        [
            "layer_norm",
            "critic_entries",
            "encoder_units",
            "random_shift",
            "tau",
            "actor",
            "critic",
            "models",
            "shared_gradient",
            "memory",
            "memory_units",
            "attention_heads",
            "sequence_length",
            "burn_in",
            "sequences_per_update",
            "gumbel_temperature",
            "logit_penalty",
            "action_masks",
            "quantize",
            "quantize_freeze_steps",
        ]
    )

    critic_activation: str = setting(
        "elu",
        "Activation of the critics' hidden layers (authors' code)",
        choices=tuple(ACTIVATIONS),
    )
    embedding_size: int = setting(
        256,
        "Size of the state embedding and of the state-action embedding (authors' code)",
        at_least=1,
        at_most=2**14,
    )
    encoder_hidden_sizes: tuple[int, ...] = setting(
        (256, 256),
        "Units of each hidden layer of the encoder (authors' code)",
        at_least=1,
        at_most=2**14,
        longest=64,
    )
    encoder_activation: str = setting(
        "elu",
        "Activation of the encoder's hidden layers (authors' code)",
        choices=tuple(ACTIVATIONS),
    )
    encoder_learning_rate: float = setting(
        3e-4, "Adam learning rate of the encoder (authors' code)", above=0
    )
    n_critics: int = setting(
        2, "Number of critics, whose minimum forms the target (paper)", at_least=1, at_most=256
    )
    policy_delay: int = setting(
        2, "Critic updates per actor update (paper)", unit="updates", at_least=1, at_most=1000
    )
    target_noise: float = setting(
        0.2,
        "Standard deviation of target smoothing noise (paper)",
        unit="relative to actions in [-1, 1]",
        at_least=0,
    )
    target_noise_clip: float = setting(
        0.5,
        "Maximum absolute target smoothing noise (paper)",
        unit="relative to actions in [-1, 1]",
        at_least=0,
    )
    copy_every: int = setting(
        250,
        "Updates between copies to target networks and fixed encoders; a multiple of "
        "--updates-per-call (paper)",
        unit="updates",
        at_least=1,
        at_most=10**9,
    )

    @property
    def uses_terminal_observations(self) -> bool:
        """True, because the encoder learns to predict the embeddings of all next observations."""
        return True

    def check_spaces(self, observations: Observations, actions: Actions) -> None:
        """Validates the settings against the spaces.

        Raises:
            ValueError: If observations have images or actions have discrete choices.
        """
        if observations.images or actions.choices:
            wrong = observations.space if observations.images else actions.space
            raise ValueError(
                f"TD7 requires vector observations and continuous actions; got {wrong}: use td3 or "
                "ddpg"
            )
        super().check_spaces(observations, actions)

    def actor_architecture(self, observations: Observations, actions: Actions) -> ActorArchitecture:
        """Returns the actor's architecture, including its state encoder."""
        return ActorArchitecture(
            observation_size=observations.size,
            head=ActionHead(actions.continuous),
            hidden_sizes=self.hidden_sizes,
            activation=self.activation,
            normalized=self.normalize_observations,
            encoder=StateEmbedding(
                units=self.embedding_size,
                hidden_sizes=self.encoder_hidden_sizes,
                activation=self.encoder_activation,
                features=self.hidden_sizes[0],
            ),
        )
