"""Keras models: the actor, the critic ensemble, and what surrounds them."""

from eagerly.networks.actor import Actor
from eagerly.networks.critic import Critic
from eagerly.networks.encoded import EncodedActor, EncodedCritic
from eagerly.networks.episodes import Episodes, MemoryPolicy
from eagerly.networks.heads import ActionHead
from eagerly.networks.normalization import ObservationNormalization
from eagerly.networks.policy import ActingPolicy, acting_policy
from eagerly.networks.remembering import History, HistoryEncoder, MemoryActor

__all__ = [
    "ActingPolicy",
    "ActionHead",
    "Actor",
    "Critic",
    "EncodedActor",
    "EncodedCritic",
    "Episodes",
    "History",
    "HistoryEncoder",
    "MemoryActor",
    "MemoryPolicy",
    "ObservationNormalization",
    "acting_policy",
]
