"""Settings of TD3."""

from __future__ import annotations

from typing import Any

from eagerly.agents.agent_settings import ON_CONTINUOUS
from eagerly.agents.config import AgentConfig
from eagerly.settings import setting


class TD3Config(AgentConfig):
    """Settings of TD3.

    "paper" refers to Fujimoto et al. 2018.
    """

    n_critics: int = setting(
        2,
        "Number of critics, whose minimum forms the target (paper)",
        at_least=1,
        at_most=256,
        built=True,
    )
    policy_delay: int = setting(
        2,
        "Critic updates per update of the actor and the targets (paper)",
        unit="updates",
        at_least=1,
        at_most=1000,
    )
    target_noise: float = setting(
        0.2,
        "Standard deviation of target smoothing noise (paper)",
        unit="relative to actions in [-1, 1]",
        at_least=0,
        requires=ON_CONTINUOUS,
    )
    target_noise_clip: float = setting(
        0.5,
        "Maximum absolute target smoothing noise (paper)",
        unit="relative to actions in [-1, 1]",
        at_least=0,
        requires=ON_CONTINUOUS,
    )

    def critics(self) -> dict[str, Any]:
        """Returns the network arguments specific to the critics."""
        return {"n_critics": self.n_critics}
