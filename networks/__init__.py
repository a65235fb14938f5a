"""Keras models: the actor, the critic ensemble, and what surrounds them."""

from eagerly.networks.actor import Actor
from eagerly.networks.critic import Critic
from eagerly.networks.episodes import Episodes, MemoryPolicy
from eagerly.networks.normalization import ObservationNormalization
from eagerly.networks.policy import ActingPolicy, acting_policy
from eagerly.networks.remembering import History, MemoryActor, MemoryCritic
from eagerly.networks.spaces import ActionBounds, observation_size

__all__ = [
    "ActingPolicy",
    "ActionBounds",
    "Actor",
    "Critic",
    "Episodes",
    "History",
    "MemoryActor",
    "MemoryCritic",
    "MemoryPolicy",
    "ObservationNormalization",
    "acting_policy",
    "observation_size",
]
