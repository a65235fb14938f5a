"""TD3 in plain NumPy, written from Algorithm 1 of Fujimoto et al. 2018."""

from __future__ import annotations

import numpy as np

from tests.agents.reference import (
    Adam,
    Gradient,
    Network,
    actor_gradients,
    critic_gradients,
    critic_values,
    followed,
    forward,
)


class ReferenceTD3:
    """TD3 as in Algorithm 1, starting from given networks."""

    def __init__(
        self,
        actor: Network,
        critics: list[Network],
        *,
        actor_rate: float,
        critic_rate: float,
        epsilon: float,
        tau: float,
        delay: int,
        clip: float,
    ) -> None:
        self.actor, self.actor_target = actor, actor
        self.critics, self.critic_targets = critics, critics
        self.actor_adam = Adam(actor, actor_rate, epsilon)
        self.critic_adams = [Adam(critic, critic_rate, epsilon) for critic in critics]
        self.tau, self.delay, self.clip, self.count = tau, delay, clip, 0

    def update(
        self,
        observation: np.ndarray,
        action: np.ndarray,
        reward: np.ndarray,
        discount: np.ndarray,
        next_observation: np.ndarray,
        noise: np.ndarray,
    ) -> None:
        self.count += 1
        next_action = np.tanh(forward(self.actor_target, next_observation)[-1])
        next_action = np.clip(next_action + np.clip(noise, -self.clip, self.clip), -1, 1)
        next_values = [
            critic_values(critic, next_observation, next_action) for critic in self.critic_targets
        ]
        target = reward + discount * np.min(next_values, axis=0)
        for index, critic in enumerate(self.critics):
            self.critics = [*self.critics]
            gradients = critic_gradients(critic, observation, action, target)
            self.critics[index] = self.critic_adams[index].step(critic, gradients)
        if self.count % self.delay:
            return
        gradients = self.actor_gradients(observation, action)
        self.actor = self.actor_adam.step(self.actor, gradients)
        self.critic_targets = [
            followed(self.tau, t, c) for t, c in zip(self.critic_targets, self.critics, strict=True)
        ]
        self.actor_target = followed(self.tau, self.actor_target, self.actor)

    def actor_gradients(self, observation: np.ndarray, action: np.ndarray) -> Gradient:
        """Returns the gradients of the actor's loss. TD3 does not use the recorded actions."""
        return actor_gradients(self.actor, self.critics[0], observation)
