"""Deterministic actor-critic agents for continuous control in TensorFlow 2 and Keras 3.

The public names below are imported when they are first used, so that `import eagerly` has no
side effect and does not load TensorFlow.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eagerly.version import __version__

if TYPE_CHECKING:
    from eagerly.agents.ddpg import DDPG
    from eagerly.agents.ddpg_config import DDPGConfig
    from eagerly.agents.td3 import TD3
    from eagerly.agents.td3_config import TD3Config
    from eagerly.agents.td7 import TD7
    from eagerly.agents.td7_config import TD7Config
    from eagerly.buffers import ReplayBuffer, Transition
    from eagerly.errors import RunError
    from eagerly.networks import Actor, Critic
    from eagerly.policies.policy import Policy
    from eagerly.spaces import Actions, Observations
    from eagerly.storage.config import RunConfig
    from eagerly.storage.loading import load_policy
    from eagerly.storage.run import open_run
    from eagerly.training.callbacks import Callback, ProgressBar
    from eagerly.training.collector import Collector
    from eagerly.training.evaluation import evaluate
    from eagerly.training.trainer import Trainer

# An editable install reaches this file through a link. Debuggers and tracebacks show real paths.
__path__ = [str(Path(__file__).resolve().parent)]

_HOMES = {
    "DDPG": "agents.ddpg",
    "DDPGConfig": "agents.ddpg_config",
    "TD3": "agents.td3",
    "TD3Config": "agents.td3_config",
    "TD7": "agents.td7",
    "TD7Config": "agents.td7_config",
    "Actions": "spaces",
    "Actor": "networks",
    "Callback": "training.callbacks",
    "Collector": "training.collector",
    "Critic": "networks",
    "Observations": "spaces",
    "ReplayBuffer": "buffers",
    "Transition": "buffers",
    "Policy": "policies.policy",
    "ProgressBar": "training.callbacks",
    "RunConfig": "storage.config",
    "RunError": "errors",
    "Trainer": "training.trainer",
    "evaluate": "training.evaluation",
    "load_policy": "storage.loading",
    "open_run": "storage.run",
}

__all__ = [
    "DDPG",
    "TD3",
    "TD7",
    "Actions",
    "Actor",
    "Callback",
    "Collector",
    "Critic",
    "DDPGConfig",
    "Observations",
    "Policy",
    "ProgressBar",
    "ReplayBuffer",
    "RunConfig",
    "RunError",
    "TD3Config",
    "TD7Config",
    "Trainer",
    "Transition",
    "__version__",
    "evaluate",
    "load_policy",
    "open_run",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'eagerly' has no attribute {name!r}")
    from eagerly.quiet import quiet_tensorflow

    with quiet_tensorflow():
        value = getattr(importlib.import_module(f"eagerly.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
