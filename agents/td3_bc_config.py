"""Settings of TD3+BC."""

from __future__ import annotations

from types import MappingProxyType

from eagerly.agents.td3_config import TD3Config
from eagerly.settings import Group, setting


class TD3BCConfig(TD3Config):
    """Settings of TD3+BC, in addition to those of TD3.

    "authors' code" is the public code of Fujimoto and Gu 2021.
    """

    FROM_ENVIRONMENTS = frozenset({"discount", "warmup_steps"})
    EXAMPLES = (
        "--env HalfCheetah-v5 --data cheetah.hdf5 --offline",
        "--env Hopper-v5 --data walk.hdf5 --offline --steps 100000",
        "--env Hopper-v5 --data walk.hdf5 --offline --bc-alpha 0",
    )
    DEFAULTS = MappingProxyType({"normalize_observations": True})

    bc_alpha: float = setting(
        2.5,
        "Weight of the critic's values relative to the behavior cloning error, alpha; 0: behavior "
        "cloning only (authors' code)",
        at_least=0,
        basic=True,
        group=Group("TD3+BC"),
    )
