"""Keras models: the actor, the critic ensemble, and what surrounds them."""

from eagerly.networks.acting import ActingPolicy, acting_policy
from eagerly.networks.actor import Actor
from eagerly.networks.critic import Critic
from eagerly.networks.encoded import EncodedActor, EncodedCritic
from eagerly.networks.memory import History, HistoryEncoder, MemoryActor
from eagerly.networks.normalization import ObservationNormalization

__all__ = [
    "ActingPolicy",
    "Actor",
    "Critic",
    "EncodedActor",
    "EncodedCritic",
    "History",
    "HistoryEncoder",
    "MemoryActor",
    "ObservationNormalization",
    "acting_policy",
]
