"""Settings of DDPG, and published sets of settings."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from eagerly.agents.agent_settings import SHAPES_CRITICS, SHAPES_NETWORKS
from eagerly.agents.config import AgentConfig
from eagerly.settings import Group, setting

# The TD3 authors' current DDPG: their OurDDPG.py with the arguments of their main.py.
_OUR = {
    "hidden_sizes": (256, 256),
    "initializer": "glorot_uniform",  # torch_linear in their code; no difference was measured
    "last_layer_limit": 0.0,
    "action_layer": 0,
    "critic_l2": 0.0,
    "actor_learning_rate": 3e-4,
    "critic_learning_rate": 3e-4,
    "batch_size": 256,
    "tau": 0.005,
    "exploration": "gaussian",
    "exploration_noise": 0.1,
}
# The TD3 authors' PyTorch code of 2018, DDPG.py, with tau and batch size from their main.py. An
# article ported it line by line to TensorFlow (documentation: DDPG). Layers, learning rates and
# penalty follow section 7 of the paper.
_ARTICLE = _OUR | {
    "hidden_sizes": (400, 300),
    "initializer": "torch_linear",
    "action_layer": 1,
    "critic_l2": 1e-2,
    "actor_learning_rate": 1e-4,
    "critic_learning_rate": 1e-3,
    "batch_size": 100,
}
# Section 7 of the paper, for low-dimensional observations.
_LILLICRAP = _ARTICLE | {
    "last_layer_limit": 3e-3,
    "batch_size": 64,
    "tau": 1e-3,
    "exploration": "ornstein_uhlenbeck",
    "exploration_noise": 0.2,
    "ou_theta": 0.15,
}


def _check_layers(config: DDPGConfig) -> None:
    if config.action_layer > len(config.hidden_sizes):
        raise ValueError(
            f"action_layer must be at most the number of hidden layers, "
            f"{len(config.hidden_sizes)}; got {config.action_layer}"
        )


_DDPG = Group("DDPG", _check_layers)


class DDPGConfig(AgentConfig):
    """Settings of DDPG.

    "paper" refers to Lillicrap et al. 2016.
    """

    PRESETS = MappingProxyType({"our": _OUR, "article": _ARTICLE, "lillicrap": _LILLICRAP})

    action_layer: int = setting(
        0,
        "Index of the critic layer that receives the action (paper: 1, the second)",
        at_least=0,
        requires=SHAPES_CRITICS,
        group=_DDPG,
        built=True,
    )
    critic_l2: float = setting(
        0.0,
        "L2 penalty c: adds c/2 Σw² over the critic's layers, excluding encoders (paper: 0.01)",
        at_least=0,
        requires=SHAPES_CRITICS,
        group=_DDPG,
        built=True,
    )
    last_layer_limit: float = setting(
        0.0,
        "Limit of the uniform initialization of output layers (paper: 0.003); 0: `initializer`",
        at_least=0,
        requires=SHAPES_NETWORKS,
        group=_DDPG,
        built=True,
    )

    def networks(self) -> dict[str, Any]:
        """Returns the network arguments shared by actor and critic."""
        return super().networks() | {"last_layer_limit": self.last_layer_limit}

    def critics(self) -> dict[str, Any]:
        """Returns the network arguments specific to the critic."""
        return {"n_critics": 1, "action_layer": self.action_layer, "l2": self.critic_l2}
