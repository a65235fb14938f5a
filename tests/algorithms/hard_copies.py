"""TD3 whose target networks are copied every n updates, as in DQN.

Mnih et al. 2015, "Human-level control through deep reinforcement learning", Algorithm 1: "Every C
steps reset Q̂ = Q". Targets are copied between calls of the compiled program, so the number of
updates per call must divide n.
"""

from __future__ import annotations

from eagerly.algorithms import TD3, ModelBuilder, Modules, TD3Config, actor_critic, setting, when


class HardCopiesConfig(TD3Config):
    """Settings of TD3, and the interval at which target networks are copied."""

    copy_every: int = setting(
        400,  # on average, target weights are 200 updates old, as with tau 0.005
        "Updates between copies to target networks; 0: targets are moving averages (tau)",
        unit="updates",
        at_least=0,
    )
    tau: float = setting(
        0.005,
        "Fraction by which target networks move toward their networks per target update (authors)",
        above=0,
        at_most=1,
        requires=when("copy_every", 0),
    )


class HardCopies(TD3):
    """TD3 with target networks that are constant between copies."""

    Config = HardCopiesConfig
    config: HardCopiesConfig

    def build(self, builder: ModelBuilder) -> Modules:
        """Builds the modules of TD3, with target networks copied between calls."""
        modules = actor_critic(builder)
        for module in modules.values():
            module.copy_every = self.config.copy_every
        return modules
