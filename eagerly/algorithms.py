"""Public names for custom algorithms: `from eagerly.algorithms import TD3, setting`.

In the documentation, "Your algorithm" is a tutorial, and "Interface of algorithms" describes all
names.
"""

from eagerly.agents import losses
from eagerly.agents.actor_critic import actor_critic
from eagerly.agents.agent import Agent
from eagerly.agents.builder import ModelBuilder
from eagerly.agents.config import AgentConfig
from eagerly.agents.ddpg import DDPG
from eagerly.agents.ddpg_config import DDPGConfig
from eagerly.agents.inputs import Batch
from eagerly.agents.metrics import actor_metrics, critic_metrics
from eagerly.agents.modules import Module, Modules
from eagerly.agents.outputs import ActionHeadOps
from eagerly.agents.results import Tensors
from eagerly.agents.schedule import Phase
from eagerly.agents.td3 import TD3
from eagerly.agents.td3_bc import TD3BC
from eagerly.agents.td3_bc_config import TD3BCConfig
from eagerly.agents.td3_config import TD3Config
from eagerly.agents.td7 import TD7
from eagerly.agents.td7_config import TD7Config
from eagerly.agents.update_random import UpdateRandom
from eagerly.errors import RunStoppedError
from eagerly.networks import Actor, Critic, History, padding
from eagerly.networks.custom import CustomActor, CustomCritic
from eagerly.networks.initializers import weight_seeds
from eagerly.networks.layers import EnsembleDense, Linear, Scalar
from eagerly.networks.mlp import MLP
from eagerly.networks.models import CriticModel, Model, repeated
from eagerly.networks.normalization import EnsembleBatchNormalization, EnsembleLayerNormalization
from eagerly.networks.quantization import fake_quantized, grid
from eagerly.policies.behavior import BehaviorPolicy
from eagerly.seeding import Stream, seed_word
from eagerly.settings import Group, Requirement, setting, when
from eagerly.spaces import Actions, Observations
from eagerly.training.policy_checkpoints import PolicyCheckpoints
from eagerly.training.update_budget import UpdateBudget

__all__ = [
    "DDPG",
    "MLP",
    "TD3",
    "TD3BC",
    "TD7",
    "ActionHeadOps",
    "Actions",
    "Actor",
    "Agent",
    "AgentConfig",
    "Batch",
    "BehaviorPolicy",
    "Critic",
    "CriticModel",
    "CustomActor",
    "CustomCritic",
    "DDPGConfig",
    "EnsembleBatchNormalization",
    "EnsembleDense",
    "EnsembleLayerNormalization",
    "Group",
    "History",
    "Linear",
    "Model",
    "ModelBuilder",
    "Module",
    "Modules",
    "Observations",
    "Phase",
    "PolicyCheckpoints",
    "Requirement",
    "RunStoppedError",
    "Scalar",
    "Stream",
    "TD3BCConfig",
    "TD3Config",
    "TD7Config",
    "Tensors",
    "UpdateBudget",
    "UpdateRandom",
    "actor_critic",
    "actor_metrics",
    "critic_metrics",
    "fake_quantized",
    "grid",
    "losses",
    "padding",
    "repeated",
    "seed_word",
    "setting",
    "weight_seeds",
    "when",
]
