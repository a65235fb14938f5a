"""DDPG in plain NumPy, written from Algorithm 1 of Lillicrap et al. 2016."""

from __future__ import annotations

import numpy as np

from tests.agents.reference import (
    Adam,
    Network,
    actor_gradients,
    critic_gradients,
    critic_values,
    followed,
    forward,
)


class ReferenceDDPG:
    """DDPG as in Algorithm 1, starting from given networks."""

    def __init__(
        self,
        actor: Network,
        critic: Network,
        *,
        actor_rate: float,
        critic_rate: float,
        epsilon: float,
        tau: float,
        join: int,
        l2: float,
    ) -> None:
        self.actor = self.actor_target = actor
        self.critic = self.critic_target = critic
        self.actor_adam = Adam(actor, actor_rate, epsilon)
        self.critic_adam = Adam(critic, critic_rate, epsilon)
        self.tau, self.join, self.l2 = tau, join, l2

    def update(
        self,
        observation: np.ndarray,
        action: np.ndarray,
        reward: np.ndarray,
        discount: np.ndarray,
        next_observation: np.ndarray,
    ) -> None:
        next_action = np.tanh(forward(self.actor_target, next_observation)[-1])
        next_value = critic_values(self.critic_target, next_observation, next_action, self.join)
        target = reward + discount * next_value
        gradients = critic_gradients(self.critic, observation, action, target, self.join, self.l2)
        self.critic = self.critic_adam.step(self.critic, gradients)
        gradients = actor_gradients(self.actor, self.critic, observation, self.join)
        self.actor = self.actor_adam.step(self.actor, gradients)
        self.critic_target = followed(self.tau, self.critic_target, self.critic)
        self.actor_target = followed(self.tau, self.actor_target, self.actor)
