"""Keras models: the actor, the critic ensemble, and what surrounds them."""

from eagerly.networks.actor import Actor
from eagerly.networks.critic import Critic
from eagerly.networks.normalization import ObservationNormalization
from eagerly.networks.policy import ActingPolicy
from eagerly.networks.spaces import ActionBounds, observation_size

__all__ = [
    "ActingPolicy",
    "ActionBounds",
    "Actor",
    "Critic",
    "ObservationNormalization",
    "observation_size",
]
